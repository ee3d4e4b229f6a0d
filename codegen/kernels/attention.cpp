// Owns the attention and attention_merge rows: one query position against the KV cache, in splits.
// Device code: ptx_templates/ops/attention.h, over atoms ops/kv_atoms.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/kv_atoms.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {
namespace {

// The visible positions of a split. Stated here again, not shared with the device code: the oracle
// must not take a wrong range for granted.
std::pair<int, int> split_range(const KernelKey& key, int position, int split) {
  const int first = key.window > 0 ? std::max(0, position - key.window + 1) : 0;
  const int part = ceil_div(ceil_div(position + 1 - first, key.splits), 32) * 32;
  const int begin = std::min(first + split * part, position + 1);
  return {begin, std::min(begin + part, position + 1)};
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("kv_heads", key.kv_heads, 1, 1024));
  LATHE_TRY(in_range("heads", key.heads, key.kv_heads, 1024));
  LATHE_TRY(in_range("head_dim", key.head_dim, 2, 64 * dev::kAttentionMaxPairs));
  LATHE_TRY(in_range("window", key.window, 0, 1 << 30));
  LATHE_TRY(in_range("splits", key.splits, 1, 1024));
  LATHE_TRY(in_range("warps", key.warps, 1, 16));
  if (key.heads % key.kv_heads)
    return invalid("heads is {}; it must be a multiple of kv_heads ({})", key.heads, key.kv_heads);
  if (key.head_dim % 2) return invalid("head_dim is {}; it must be even", key.head_dim);
  return check_atoms(key);
}

Geometry geometry(const KernelKey& key) {
  const int group = key.heads / key.kv_heads;
  const int per_block = dev::attention_heads(group, key.head_dim);
  const int floats = dev::attention_shared_floats(group, key.head_dim, key.warps);
  return {.grid_x = static_cast<unsigned>(key.kv_heads * ceil_div(group, per_block)),
          .grid_y = static_cast<unsigned>(key.splits),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(floats * 4)};
}

std::int64_t partial_values(const KernelKey& key) {
  return static_cast<std::int64_t>(key.heads) * key.splits * (key.head_dim + 2);
}

std::vector<Param> params(const KernelKey& key) {
  std::vector<Param> out = {vector_in("q", static_cast<std::int64_t>(key.heads) * key.head_dim),
                            cache("k_cache", key, Access::read),
                            cache("v_cache", key, Access::read), position_in()};
  if (key.paged) out.push_back(pages_in());
  if (key.atoms > 0)
    for (const Param& table : atom_tables(key)) out.push_back(table);
  out.push_back(vector_out("partial", partial_values(key)));
  return out;
}

OpCall call(const KernelKey& key) {
  const bool atoms = key.atoms > 0;
  OpCall call{atoms ? "ops/kv_atoms.h" : "ops/attention.h", cache_op("attention", key),
              atoms ? parameters(7) : parameters_of({true, true, true, true, key.paged, true})};
  for (int value : {key.heads, key.kv_heads, key.head_dim, key.window})
    call.arguments.push_back(integer(value));
  if (atoms) call.arguments.push_back(integer(key.terms));
  for (int value : {key.splits, key.warps}) call.arguments.push_back(integer(value));
  call.arguments.push_back(real(key.scale));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t sums = 4ll * key.kv_heads * key.terms * key.head_dim;  // of atoms
  return {2 * position_bytes(key), partial_values(key) * 4, 4ll * key.heads * key.head_dim + sums};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* q = static_cast<const float*>(arguments[0]);
  const auto* k_cache = static_cast<const std::byte*>(arguments[1]);
  const auto* v_cache = static_cast<const std::byte*>(arguments[2]);
  const int position = *static_cast<const std::int32_t*>(arguments[3]);
  const auto* pages = key.paged ? static_cast<const std::int32_t*>(arguments[4]) : nullptr;
  const bool atoms = key.atoms > 0;
  auto* partial = static_cast<float*>(arguments[atoms ? 6 : key.paged ? 5 : 4]);
  const int d = key.head_dim;
  const std::int64_t head_bytes = position_bytes(key) / key.kv_heads;
  double values[256], sums[256];
  const auto [first, last] = share(static_cast<std::int64_t>(key.heads) * key.splits, part, parts);
  std::vector<double> scores;
  for (std::int64_t item = first; item < last; ++item) {
    const int head = static_cast<int>(item / key.splits);
    const auto [begin, end] = split_range(key, position, static_cast<int>(item % key.splits));
    const int kv_head = head / (key.heads / key.kv_heads);
    // The key or value of a position; the table of a cache of atoms.
    const auto load = [&](const std::byte* cache, std::size_t table, int p) {
      const std::byte* at = cache + (place_of(pages, p) * key.kv_heads + kv_head) * head_bytes;
      if (atoms)
        return decode_vector(key, reinterpret_cast<const std::uint32_t*>(at),
                             static_cast<const float*>(arguments[table]), values);
      float numbers[256];
      row(key.format).unpack(at, d, numbers);
      std::copy_n(numbers, d, values);
    };
    double maximum = -3.0e38f, total = 0;
    scores.assign(static_cast<std::size_t>(end - begin), 0);
    for (int p = begin; p < end; ++p) {
      load(k_cache, 4, p);
      double dot = 0;
      for (int e = 0; e < d; ++e) dot += static_cast<double>(q[head * d + e]) * values[e];
      scores[static_cast<std::size_t>(p - begin)] = dot * key.scale;
      maximum = std::max(maximum, dot * key.scale);
    }
    std::fill_n(sums, d, 0.0);
    for (int p = begin; p < end; ++p) {
      const double weight = std::exp(scores[static_cast<std::size_t>(p - begin)] - maximum);
      total += weight;
      load(v_cache, 5, p);
      for (int e = 0; e < d; ++e) sums[e] += weight * values[e];
    }
    float* out = partial + item * (d + 2);
    for (int e = 0; e < d; ++e) out[e] = static_cast<float>(sums[e]);
    out[d] = static_cast<float>(maximum);
    out[d + 1] = static_cast<float>(total);
  }
}

Result<void> check_merge(const KernelKey& key) {
  LATHE_TRY(in_range("heads", key.heads, 1, 1024));
  LATHE_TRY(in_range("head_dim", key.head_dim, 1, 256));
  LATHE_TRY(in_range("splits", key.splits, 1, 1024));
  return in_range("warps", key.warps, 1, 32);
}

Geometry geometry_merge(const KernelKey& key) {
  return per_element(key.heads * key.head_dim, key.warps);
}

std::vector<Param> params_merge(const KernelKey& key) {
  return {vector_in("partial", partial_values(key)),
          vector_out("y", static_cast<std::int64_t>(key.heads) * key.head_dim)};
}

OpCall call_merge(const KernelKey& key) {
  OpCall call{"ops/attention.h", "attention_merge", parameters(2)};
  for (int value : {key.heads, key.head_dim, key.splits, key.warps})
    call.arguments.push_back(integer(value));
  return call;
}

Cost cost_merge(const KernelKey& key) {
  return {partial_values(key) * 4, key.heads * key.head_dim * 4ll, partial_values(key) * 2};
}

void oracle_merge(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* partial = static_cast<const float*>(arguments[0]);
  auto* y = static_cast<float*>(arguments[1]);
  const int d = key.head_dim, stride = d + 2;
  const auto [first, last] = share(key.heads, part, parts);
  for (std::int64_t head = first; head < last; ++head) {
    const float* from = partial + head * key.splits * stride;
    double maximum = -3.0e38f, total = 0;
    for (int s = 0; s < key.splits; ++s)
      maximum = std::max(maximum, static_cast<double>(from[s * stride + d]));
    double sums[256] = {};
    for (int s = 0; s < key.splits; ++s) {
      const double factor = std::exp(from[s * stride + d] - maximum);
      total += factor * from[s * stride + d + 1];
      for (int e = 0; e < d; ++e) sums[e] += factor * from[s * stride + e];
    }
    for (int e = 0; e < d; ++e) y[head * d + e] = static_cast<float>(sums[e] / total);
  }
}

const char* text_template(const KernelKey& key) {
  return key.paged || key.atoms > 0 ? nullptr : "attention";
}
const char* text_template_merge(const KernelKey&) {
  return "attention_merge";
}

}  // namespace

const KernelRow kAttentionRow = {
    KernelType::attention,
    "attention",
    "one query position over the KV cache, one result per split",
    "heads kv_heads head_dim atoms terms window warps splits scale paged",
    "f32 f16",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-5,
    "softmax weights carry the score's f32 error, about |score| ulps; scores to 50 allowed for",
    text_template};

const KernelRow kAttentionMergeRow = {KernelType::attention_merge,
                                      "attention_merge",
                                      "combines the splits of attention",
                                      "heads head_dim warps splits",
                                      "f32",
                                      check_merge,
                                      geometry_merge,
                                      params_merge,
                                      call_merge,
                                      cost_merge,
                                      oracle_merge,
                                      2e-6,
                                      "f32 sums over the splits and one division",
                                      text_template_merge};

}  // namespace lathe
