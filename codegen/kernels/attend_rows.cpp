// Owns the attend_rows row: attention of the tokens of a batch, each against the positions of its
// own sequence. Device code: ptx_templates/ops/attend_rows.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/attend_shapes.h"
#include "ptx_templates/ops/matmul_shapes.h"

namespace lathe {
namespace {

// Of a block: small ones share a multiprocessor, so that one streams while another ends a piece.
constexpr int kMostWarps = 8;
// Blocks that are launched where the key does not say: no more are busy at once on any device, and
// those without work cost little.
constexpr std::int64_t kMostBlocks = 1024;

Result<void> check(const KernelKey& key) {
  LATHE_TRY(has_tokens(key));
  if (key.tokens > dev::kFewTokens)
    return invalid("tokens is {}; a batch has at most {}", key.tokens, int{dev::kFewTokens});
  LATHE_TRY(check_heads(key, 16));
  LATHE_TRY(check_splits(key));
  LATHE_TRY(check_matrix(key));
  LATHE_TRY(in_range("warps", key.warps, 1, kMostWarps));
  return in_range("blocks", key.blocks, 0, 1 << 16);
}

int blocks(const KernelKey& key) {
  const std::int64_t pieces = std::int64_t{key.kv_heads} * key.splits * key.tokens;
  const std::int64_t most = key.blocks > 0 ? key.blocks : kMostBlocks;
  return static_cast<int>(std::min(pieces, most));
}

Geometry geometry(const KernelKey& key) {
  const dev::AttendShared shared =
      key.matrix ? dev::attend_matrix_shared(
                       dev::attend_matrix_shape(key.heads, key.kv_heads, key.head_dim),
                       key.head_dim, key.splits, key.warps)
                 : dev::attend_shared(attend_shape(key), key.head_dim, kv_value_bytes(key),
                                      key.splits, key.warps);
  return {.grid_x = static_cast<unsigned>(blocks(key)),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(shared.bytes),
          .resident = key.matrix && !key.paged ? 2u : 1u};
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t queries = std::int64_t{key.tokens} * key.heads * key.head_dim;
  std::vector<Param> out = {
      {"queries", Access::read, Element::f16, queries * 2, 16}, chunk_in(), rows_in(key.tokens)};
  add_caches(key, Access::read, out);
  for (const Param& param : merge_params(key, key.tokens)) out.push_back(param);
  out.push_back(operands_out("y", true, key.tokens, key.heads * key.head_dim));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/attend_rows.h", cache_op("attend_rows", key) + (key.matrix ? "_matrix" : ""),
              parameters_of({true, true, true, key.paged, true, true, true, true, true})};
  for (int value : {key.heads, key.kv_heads, key.head_dim, key.window, key.splits, key.tokens,
                    blocks(key), key.warps})
    call.arguments.push_back(integer(value));
  return call;
}

// Per cached position of one token, as for attention.
Cost cost(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.heads} * key.head_dim;
  return {2 * kv_position_bytes(key.format, std::int64_t{key.kv_heads} * key.head_dim),
          key.tokens * values * 2, 4ll * values};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* queries = static_cast<const std::uint16_t*>(arguments[0]);
  const auto* chunk = static_cast<const std::int32_t*>(arguments[1]);
  const auto* rows = static_cast<const std::int32_t*>(arguments[2]);
  std::size_t i = 3;
  const Caches caches = take_caches(key, arguments, i);
  auto* counters = static_cast<std::int32_t*>(arguments[i + 1]);  // behind partial
  const int all = key.heads * key.head_dim;
  const OperandRows y = {static_cast<std::uint16_t*>(arguments[i + 2]), dev::operand_width(all),
                         operand_tokens(true, key.tokens)};
  const auto [first, last] = share(std::min(chunk[0], key.tokens), part, parts);
  for (std::int64_t token = first; token < last; ++token) {
    const int position = rows[2 * token];
    attend_token(key, position, queries + token * all, from_row(key, caches, rows[2 * token + 1]),
                 y, int(token));
    const int visible = key.window > 0 ? std::min(key.window, position + 1) : position + 1;
    if (dev::attend_row_splits(visible, key.head_dim, kv_value_bytes(key), key.splits) == 1)
      continue;
    for (int kv_head = 0; kv_head < key.kv_heads; ++kv_head)
      counters[token * key.kv_heads + kv_head] += dev::kArrivals;
  }
}

}  // namespace

const KernelRow kAttendRowsRow = {
    KernelType::attend_rows,
    "attend_rows",
    "attention of a batch's tokens, each over its own sequence, as operands of matmul",
    "tokens heads kv_heads head_dim window warps blocks splits matrix early paged",
    "f32 f16 q8_0",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    5e-4,
    "results are rounded to f16: where f32 arithmetic takes another one, which is seldom, a value "
    "is "
    "2^-10 off. With matrix scores and values are sums of matrix units, as of attend",
    no_template,
    0,
    "",
    [](const KernelKey& key) { return key.matrix ? "mma ex2" : nullptr; }};

}  // namespace lathe
