// Owns the kv_append row: stores one position's K and V. Device code: ptx_templates/ops/kv_cache.h,
// of atoms ops/kv_atoms.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/kv_atoms.h"
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("kv_heads", key.kv_heads, 1, 1024));
  LATHE_TRY(in_range("head_dim", key.head_dim, 1, 1024));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  return check_atoms(key);
}

Geometry geometry(const KernelKey& key) {
  if (key.atoms > 0)
    return {
        .grid_x = static_cast<unsigned>(key.kv_heads),
        .grid_y = 2,
        .threads = static_cast<unsigned>(key.warps * 32),
        .shared_bytes = static_cast<unsigned>(dev::atoms_shared_bytes(key.head_dim, key.warps))};
  return per_element(key.kv_heads * key.head_dim, key.warps);
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.kv_heads) * key.head_dim;
  std::vector<Param> out = {vector_in("k", values), vector_in("v", values), position_in()};
  if (key.atoms > 0)
    for (const Param& table : atom_tables(key)) out.push_back(table);
  add_caches(key, Access::write, out);
  return out;
}

OpCall call(const KernelKey& key) {
  if (key.atoms > 0) {
    OpCall call{"ops/kv_atoms.h", cache_op("kv_append", key), parameters(7)};
    for (int value : {key.kv_heads, key.head_dim, key.atoms, key.terms, key.warps})
      call.arguments.push_back(integer(value));
    return call;
  }
  OpCall call{"ops/kv_cache.h", cache_op("kv_append", key),
              parameters_of({true, true, true, key.paged, true, true})};
  for (int value : {key.kv_heads, key.head_dim, key.warps})
    call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = 2ll * key.kv_heads * key.head_dim;
  if (key.atoms > 0)
    return {values * 4 + 4 + 2ll * key.atoms * key.head_dim * 4, 2 * position_bytes(key),
            2 * values * key.atoms * key.terms};
  return {values * 4 + 4, values * row(key.format).bytes, values};
}

// arguments: k, v, position, k_atoms, v_atoms, k_cache, v_cache.
void encode(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const std::int64_t place = *static_cast<const std::int32_t*>(arguments[2]);
  const auto [first, last] = share(2ll * key.kv_heads, part, parts);
  for (std::int64_t vector = first; vector < last; ++vector) {
    const std::size_t i = vector < key.kv_heads ? 0 : 1;
    const std::int64_t head = vector % key.kv_heads;
    encode_vector(
        key, static_cast<const float*>(arguments[i]) + head * key.head_dim,
        static_cast<const float*>(arguments[3 + i]),
        static_cast<std::uint32_t*>(arguments[5 + i]) + (place * key.kv_heads + head) * key.terms);
  }
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  if (key.atoms > 0) return encode(key, arguments, part, parts);
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
  return key.paged || key.atoms > 0 ? nullptr : "kv_append";
}

}  // namespace

const KernelRow kKvAppendRow = {KernelType::kv_append,
                                "kv_append",
                                "stores one position's K and V in the cache",
                                "kv_heads head_dim atoms terms warps paged",
                                "f32 f16",
                                check,
                                geometry,
                                params,
                                call,
                                cost,
                                oracle,
                                0,
                                "one conversion per value, rounded the same way; of atoms: "
                                "verification/atom_choices.h",
                                text_template};

}  // namespace lathe
