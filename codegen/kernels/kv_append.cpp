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
  if (key.paged) out.push_back(pages_in());
  out.push_back(cache("k_cache", key, Access::write));
  out.push_back(cache("v_cache", key, Access::write));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/kv_cache.h", cache_op("kv_append", key), parameters(key.paged ? 6 : 5)};
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
  const auto* pages = key.paged ? static_cast<const std::int32_t*>(arguments[3]) : nullptr;
  const std::int64_t place = place_of(pages, *static_cast<const std::int32_t*>(arguments[2]));
  const std::size_t caches = key.paged ? 4 : 3;
  const std::int64_t width = static_cast<std::int64_t>(key.kv_heads) * key.head_dim;
  for (int i = 0; i < 2; ++i)
    row(key.format)
        .pack(static_cast<const float*>(arguments[static_cast<std::size_t>(i)]), width,
              static_cast<std::byte*>(arguments[caches + static_cast<std::size_t>(i)]) +
                  place * row_bytes(key.format, width));
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
