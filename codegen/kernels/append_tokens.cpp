// Owns the append_tokens row: a chunk's queries, keys and values on their way to attention. Device
// code: ptx_templates/ops/append_tokens.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(has_tokens(key));
  LATHE_TRY(check_heads(key, 16));
  LATHE_TRY(in_range("warps", key.warps, 1, 16));
  return check_turn(key);
}

Geometry geometry(const KernelKey& key) {
  const int bytes = key.warps * dev::append_warp_bytes(kv_value_bytes(key), key.head_dim);
  return {.grid_x = static_cast<unsigned>(ceil_div(key.heads + 2 * key.kv_heads, key.warps)),
          .grid_y = static_cast<unsigned>(key.tokens),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(bytes)};
}

std::int64_t query_values(const KernelKey& key) {
  return std::int64_t{key.tokens} * key.heads * key.head_dim;
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t d = key.head_dim;
  std::vector<Param> out = {
      vector_in("qkv", std::int64_t{key.tokens} * (key.heads + 2 * key.kv_heads) * d)};
  if (key.qk_norm) {
    out.push_back(vector_in("q_norm", d));
    out.push_back(vector_in("k_norm", d));
  }
  out.push_back(vector_in("frequencies", key.rotary));
  out.push_back(chunk_in());
  if (key.batched) out.push_back(rows_in(key.tokens));
  add_caches(key, Access::write, out);
  out.push_back({"queries", Access::write, Element::f16, query_values(key) * 2, 16});
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/append_tokens.h", cache_op("append_tokens", key),
              parameters_of({true, key.qk_norm, key.qk_norm, true, true, key.batched, key.paged,
                             true, true, true})};
  for (int value : {key.heads, key.kv_heads, key.head_dim, key.rotary,
                    key.pairing == Pairing::halves ? 1 : 0, key.warps})
    call.arguments.push_back(integer(value));
  call.arguments.push_back(real(key.epsilon));
  call.arguments.push_back(real(key.scale));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t heads = key.heads + 2 * key.kv_heads, m = key.tokens;
  return {m * heads * key.head_dim * 4, query_values(key) * 2, m * heads * key.head_dim * 4};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  std::size_t i = 0;
  const auto floats = [&](bool there) {
    return there ? static_cast<const float*>(arguments[i++]) : nullptr;
  };
  const float* qkv = floats(true);
  const float* q_norm = floats(key.qk_norm);
  const float* k_norm = floats(key.qk_norm);
  const float* frequencies = floats(true);
  const auto* chunk = static_cast<const std::int32_t*>(arguments[i++]);
  const auto* rows = key.batched ? static_cast<const std::int32_t*>(arguments[i++]) : nullptr;
  const Caches whole = take_caches(key, arguments, i);
  auto* queries = static_cast<std::uint16_t*>(arguments[i]);
  const std::int64_t d = key.head_dim;
  const auto [first, last] = share(std::min(chunk[0], key.tokens), part, parts);
  for (std::int64_t token = first; token < last; ++token) {
    const int position = rows ? rows[2 * token] : chunk[1] + static_cast<int>(token);
    const Caches caches = from_row(key, whole, rows ? rows[2 * token + 1] : chunk[2]);
    const float* own = qkv + token * (key.heads + 2 * key.kv_heads) * d;
    for (int head = 0; head < key.heads; ++head) {
      const HeadValues q = turned(key, position, frequencies, own + head * d, q_norm);
      for (std::int64_t e = 0; e < d; ++e)
        queries[(token * key.heads + head) * d + e] = f32_to_f16(
            static_cast<float>(q[static_cast<std::size_t>(e)] * static_cast<double>(key.scale)));
    }
    for (int kv_head = 0; kv_head < key.kv_heads; ++kv_head) {
      const float* k = own + (key.heads + kv_head) * d;
      append_cached(key, position, frequencies, k, k_norm, caches, kv_head);
    }
  }
}

}  // namespace

const KernelRow kAppendTokensRow = {
    KernelType::append_tokens,
    "append_tokens",
    "norm and rotation of a chunk's queries and keys, append to the KV cache",
    "tokens heads kv_heads head_dim rotary warps early epsilon scale qk_norm batched paged pairing",
    "f32 f16 q8_0",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    1e-3,
    "queries are rounded to f16, keys and values as the cache has them: few round another way",
    no_template};

}  // namespace lathe
