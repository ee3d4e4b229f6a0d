// Owns the attend row: attention of one token with all that comes between its projections and the
// output projection. Device code: ptx_templates/ops/attend.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/attend_shapes.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(check_heads(key, 8));
  LATHE_TRY(check_splits(key));
  LATHE_TRY(check_matrix(key));
  return check_turn(key);
}

Geometry geometry(const KernelKey& key) {
  const int bytes = key.matrix ? dev::attend_matrix_bytes(key.heads, key.kv_heads, key.head_dim,
                                                          key.splits, key.warps)
                               : dev::attend_bytes(key.heads, key.kv_heads, key.head_dim,
                                                   kv_value_bytes(key), key.splits, key.warps);
  return {.grid_x = static_cast<unsigned>(key.kv_heads * key.splits),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(bytes)};
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
  add_caches(key, Access::read_write, out);
  for (const Param& param : merge_params(key, 1)) out.push_back(param);
  out.push_back(vector_out("y", key.heads * d));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{
      "ops/attend.h", fmt::format("attend_{}{}", row(key.format).name, key.matrix ? "_matrix" : ""),
      parameters_of({true, key.qk_norm, key.qk_norm, true, true, true, true, true, true, true})};
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
  Caches caches;
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
  a.caches.keys = static_cast<std::byte*>(arguments[i++]);
  a.caches.values = static_cast<std::byte*>(arguments[i++]);
  ++i;  // partial
  a.counters = static_cast<std::int32_t*>(arguments[i++]);
  a.y = floats();
  return a;
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const Arguments a = read_arguments(key, arguments);
  const int visible = key.window > 0 ? std::min(key.window, a.position + 1) : a.position + 1;
  const int splits = dev::attend_splits(visible, key.head_dim, kv_value_bytes(key), key.splits);
  const auto [first, last] = share(key.kv_heads, part, parts);
  const int group = key.heads / key.kv_heads, d = key.head_dim;
  for (auto kv_head = static_cast<int>(first); kv_head < last; ++kv_head) {
    const float* k = a.qkv + (key.heads + kv_head) * d;
    append_cached(key, a.position, a.frequencies, k, a.k_norm, a.caches, kv_head);
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadValues query = turned(key, a.position, a.frequencies, a.qkv + head * d, a.q_norm);
      const HeadValues result =
          attended(key, a.position, query, static_cast<double>(key.scale), a.caches, kv_head);
      for (int e = 0; e < d; ++e)
        a.y[head * d + e] = static_cast<float>(result[static_cast<std::size_t>(e)]);
    }
    if (splits > 1) a.counters[kv_head] += dev::kArrivals;
  }
}

}  // namespace

const KernelRow kAttendRow = {
    KernelType::attend,
    "attend",
    "norm, rotation, append and attention of one token",
    "heads kv_heads head_dim rotary window warps splits matrix early epsilon scale qk_norm "
    "pairing",
    "f32 f16 q8_0",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-5,
    "softmax weights carry the score's f32 error, about |score| ulps; scores to 50 allowed for. "
    "With matrix the scores are sums of matrix units, which may cut off what a CPU rounds; an H200 "
    "met the bound",
    no_template,
    0,
    "",
    [](const KernelKey& key) {
      return key.matrix && !dev::attend_without_matrix(key.window, key.heads / key.kv_heads,
                                                       key.head_dim, key.splits)
                 ? "mma ex2"
                 : nullptr;
    }};

}  // namespace lathe
