// Owns the kv_append row: stores one position's K and V. Device code: ptx_templates/ops/kv_cache.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("kv_heads", key.kv_heads, 1, 1024));
  LATHE_TRY(in_range("head_dim", key.head_dim, 1, 1024));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  return {};
}

Geometry geometry(const KernelKey& key) {
  return per_element(key.kv_heads * key.head_dim, key.warps);
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.kv_heads) * key.head_dim;
  std::vector<Param> out = {vector_in("k", values), vector_in("v", values), position_in()};
  add_caches(key, Access::write, out);
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/kv_cache.h", cache_op("kv_append", key),
              parameters_of({true, true, true, key.paged, true, true})};
  for (int value : {key.kv_heads, key.head_dim, key.warps})
    call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = 2ll * key.kv_heads * key.head_dim;
  return {values * 4 + 4, values * row(key.format).bytes, values};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int) {
  if (part != 0) return;
  std::size_t i = 3;
  const Caches caches = take_caches(key, arguments, i);
  const std::int64_t width = static_cast<std::int64_t>(key.kv_heads) * key.head_dim;
  const std::int64_t at =
      caches.place(*static_cast<const std::int32_t*>(arguments[2])) * row_bytes(key.format, width);
  row(key.format).pack(static_cast<const float*>(arguments[0]), width, caches.keys + at);
  row(key.format).pack(static_cast<const float*>(arguments[1]), width, caches.values + at);
}

const char* text_template(const KernelKey& key) {
  return key.paged ? nullptr : "kv_append";
}

}  // namespace

const KernelRow kKvAppendRow = {KernelType::kv_append,
                                "kv_append",
                                "stores one position's K and V in the cache",
                                "kv_heads head_dim warps paged",
                                "f32 f16",
                                check,
                                geometry,
                                params,
                                call,
                                cost,
                                oracle,
                                0,
                                "one conversion per value, rounded the same way",
                                text_template};

}  // namespace lathe
