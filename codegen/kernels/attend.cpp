// Owns the attend row: attention of one token with all that comes between its projections and the
// output projection. Device code: ptx_templates/ops/attend.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {
namespace {

dev::AttendShape shape(const KernelKey& key) {
  return dev::attend_shape(key.heads, key.kv_heads, key.head_dim, kv_value_bytes(key));
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(check_heads(key));
  LATHE_TRY(in_range("rotary", key.rotary, 2, key.head_dim));
  LATHE_TRY(in_range("window", key.window, 0, 1 << 30));
  LATHE_TRY(in_range("splits", key.splits, 1, dev::kAttendMaxSplits));
  LATHE_TRY(in_range("warps", key.warps, 1, 16));
  const int unit = key.format == Format::q8_0 ? 32 : 8;
  if (key.head_dim % unit)
    return invalid("head_dim is {}; with a KV cache of {} it must be a multiple of {}",
                   key.head_dim, row(key.format).name, unit);
  if (key.rotary % 2)
    return invalid("rotary is {}; values rotate in pairs, so it must be even", key.rotary);
  if (const int teams = shape(key).teams; key.warps % teams)
    return invalid(
        "warps is {}; for {} query heads of {} values per KV head it must be a multiple "
        "of {}",
        key.warps, key.heads / key.kv_heads, key.head_dim, teams);
  if (!(key.epsilon >= 0) || !std::isfinite(key.epsilon))
    return invalid("epsilon is {}; it must be a finite number, at least 0", key.epsilon);
  if (!std::isfinite(key.scale)) return invalid("scale is not finite");
  return {};
}

Geometry geometry(const KernelKey& key) {
  const int bytes = dev::attend_bytes(key.heads, key.kv_heads, key.head_dim, kv_value_bytes(key),
                                      key.splits, key.warps);
  return {.grid_x = static_cast<unsigned>(key.kv_heads * key.splits),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(bytes)};
}

std::int64_t partial_values(const KernelKey& key) {
  return std::int64_t{key.kv_heads} * key.splits *
         dev::attend_partial_floats(key.heads / key.kv_heads, key.head_dim);
}

// The order of the parameters; the norms are there with qk_norm only.
std::vector<Param> params(const KernelKey& key) {
  const std::int64_t d = key.head_dim;
  std::vector<Param> out = {vector_in("qkv", (key.heads + 2 * key.kv_heads) * d)};
  if (key.qk_norm) {
    out.push_back(vector_in("q_norm", d));
    out.push_back(vector_in("k_norm", d));
  }
  out.push_back(vector_in("frequencies", key.rotary));
  out.push_back(position_in());
  out.push_back(cache("k_cache", key, Access::read_write));
  out.push_back(cache("v_cache", key, Access::read_write));
  out.push_back(vector_out("partial", partial_values(key)));
  out.back().scratch = true;
  out.push_back({"counters", Access::read_write, Element::i32, key.kv_heads * 4ll, 4});
  out.push_back(vector_out("y", key.heads * d));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/attend.h", fmt::format("attend_{}", row(key.format).name), {}};
  int next = 0;
  call.arguments.push_back(parameter(next++));
  for (int i = 0; i < 2; ++i)
    call.arguments.push_back(key.qk_norm ? parameter(next++) : null_argument());
  for (int i = 0; i < 7; ++i) call.arguments.push_back(parameter(next++));
  const int halves = key.pairing == Pairing::halves;
  for (int value : {key.heads, key.kv_heads, key.head_dim, key.rotary, halves, key.window,
                    key.splits, key.warps})
    call.arguments.push_back(integer(value));
  call.arguments.push_back(real(key.epsilon));
  call.arguments.push_back(real(key.scale));
  return call;
}

// Per cached position, as for attention; the new one is written once.
Cost cost(const KernelKey& key) {
  const std::int64_t position =
      2 * kv_position_bytes(key.format, std::int64_t{key.kv_heads} * key.head_dim);
  return {position, position + key.heads * key.head_dim * 4ll, 4ll * key.heads * key.head_dim};
}

// Where the pointers of params() are.
struct Arguments {
  const float *qkv, *q_norm, *k_norm, *frequencies;
  int position;
  std::byte *k_cache, *v_cache;
  std::int32_t* counters;
  float* y;
};

Arguments read_arguments(const KernelKey& key, std::span<void* const> arguments) {
  std::size_t i = 0;
  const auto floats = [&] { return static_cast<float*>(arguments[i++]); };
  Arguments a{};
  a.qkv = floats();
  if (key.qk_norm) {
    a.q_norm = floats();
    a.k_norm = floats();
  }
  a.frequencies = floats();
  a.position = *static_cast<const std::int32_t*>(arguments[i++]);
  a.k_cache = static_cast<std::byte*>(arguments[i++]);
  a.v_cache = static_cast<std::byte*>(arguments[i++]);
  ++i;  // partial
  a.counters = static_cast<std::int32_t*>(arguments[i++]);
  a.y = floats();
  return a;
}

void append(const KernelKey& key, const Arguments& a, int kv_head) {
  const int d = key.head_dim;
  const float* k = a.qkv + (key.heads + kv_head) * d;
  const HeadValues turned_key = turned(key, a.position, a.frequencies, k, a.k_norm);
  float values[256];
  for (int e = 0; e < d; ++e)
    values[e] = static_cast<float>(turned_key[static_cast<std::size_t>(e)]);
  store_cached(key, values, cache_row(key, a.k_cache, a.position, kv_head));
  for (int e = 0; e < d; ++e) values[e] = static_cast<float>(received(k[key.kv_heads * d + e]));
  store_cached(key, values, cache_row(key, a.v_cache, a.position, kv_head));
}

void attend_head(const KernelKey& key, const Arguments& a, int head) {
  const int d = key.head_dim, kv_head = head / (key.heads / key.kv_heads);
  const HeadValues query = turned(key, a.position, a.frequencies, a.qkv + head * d, a.q_norm);
  const int first = key.window > 0 ? std::max(0, a.position - key.window + 1) : 0;
  std::vector<double> scores;
  float values[256];
  double maximum = -3.0e38, total = 0;
  for (int p = first; p <= a.position; ++p) {
    load_cached(key, cache_row(key, a.k_cache, p, kv_head), values);
    double dot = 0;
    for (int e = 0; e < d; ++e) dot += query[static_cast<std::size_t>(e)] * values[e];
    scores.push_back(dot * key.scale);
    maximum = std::max(maximum, scores.back());
  }
  HeadValues sums{};
  for (int p = first; p <= a.position; ++p) {
    const double weight = std::exp(scores[static_cast<std::size_t>(p - first)] - maximum);
    total += weight;
    load_cached(key, cache_row(key, a.v_cache, p, kv_head), values);
    for (int e = 0; e < d; ++e) sums[static_cast<std::size_t>(e)] += weight * values[e];
  }
  for (int e = 0; e < d; ++e)
    a.y[head * d + e] = static_cast<float>(sums[static_cast<std::size_t>(e)] / total);
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const Arguments a = read_arguments(key, arguments);
  const int visible = key.window > 0 ? std::min(key.window, a.position + 1) : a.position + 1;
  const int splits = dev::attend_splits(visible, key.head_dim, kv_value_bytes(key), key.splits);
  const auto [first, last] = share(key.kv_heads, part, parts);
  const int group = key.heads / key.kv_heads;
  for (auto kv_head = static_cast<int>(first); kv_head < last; ++kv_head) {
    append(key, a, kv_head);
    for (int i = 0; i < group; ++i) attend_head(key, a, kv_head * group + i);
    if (splits > 1) a.counters[kv_head] += dev::kAttendArrivals;
  }
}

}  // namespace

const KernelRow kAttendRow = {
    KernelType::attend,
    "attend",
    "norm, rotation, append and attention of one token",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-5,
    "softmax weights carry the score's f32 error, about |score| ulps; scores to 50 allowed for",
    no_template};

}  // namespace lathe
