// Owns the matmul row: up to three matrices of tiles times the operands of a chunk's tokens. Device
// code: ptx_templates/ops/matmul.h.
#include <algorithm>
#include <array>
#include <vector>

#include "codegen/kernels/matvec.h"
#include "codegen/kernels/rows.h"
#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/matmul_shapes.h"
#include "ptx_templates/ops/tile_shapes.h"

namespace lathe {
namespace {

constexpr int kManyWarps = 8;  // of a block with many tokens

// A format's codes; no bits where its tiles do not become operands.
struct TileCodes {
  int bits;
  bool offsets;  // beside scales
};
TileCodes tile_codes(Format format) {
  switch (format) {
    case Format::q4_0:
      return {4, false};
    case Format::q4_1:
    case Format::q4_k:
      return {4, true};
    case Format::q5_0:
      return {5, false};
    case Format::q5_1:
    case Format::q5_k:
      return {5, true};
    case Format::q6_k:
      return {6, false};
    case Format::q8_0:
      return {8, false};
    default:
      return {};
  }
}

// Few tokens: blocks share the work, and each has all tokens.
bool is_few(const KernelKey& key) {
  return key.blocks != 0;
}
// Whether offsets of weights meet the means of operands, which only few tokens have.
bool meets_means(const KernelKey& key) {
  return is_few(key) && std::ranges::any_of(matrices(key), [](const MatrixOfKey& matrix) {
           return matrix.n > 0 && tile_codes(matrix.format).offsets;
         });
}

int shared_bytes(const KernelKey& key);

// How few tokens are shared among blocks and warps.
Result<void> check_few(const KernelKey& key) {
  LATHE_TRY(in_range("blocks", key.blocks, 1, 1 << 14));
  if (key.tokens > dev::kFewTokens)
    return invalid("tokens is {}; blocks share the work of at most {}", key.tokens,
                   int{dev::kFewTokens});
  if (key.grouped) return invalid("blocks share the work of warps that multiply by themselves");
  LATHE_TRY(in_range("warps", key.warps, 2, dev::kFewWarps + 1));
  if (key.splits != 1 && key.splits != 2 && key.splits != dev::kFewParts)
    return invalid("splits is {}; k is shared by one warp, 2 or {}", key.splits,
                   int{dev::kFewParts});
  if ((key.warps - 1) % key.splits != 0)
    return invalid("warps is {}; all but the one that copies must share k by {}", key.warps,
                   key.splits);
  if (key.gated && !key.paired) {
    if (key.splits > 1) return invalid("warps do not share k of gates that are not paired");
    if (key.warps % 2 == 0)
      return invalid("warps is {}; gates and ups must have as many, and one copies", key.warps);
  }
  return in_range("stages", key.stages, 1, int{dev::kFewStages});
}
// A block for 128 tokens has nothing of this.
Result<void> check_many(const KernelKey& key) {
  if (key.warps != kManyWarps) return invalid("warps is {}; it must be {}", key.warps, kManyWarps);
  if (key.splits != 1) return invalid("splits is {}; without blocks no warps share k", key.splits);
  if (key.paired) return invalid("without blocks row tiles are not paired");
  if (key.stages != 1) return invalid("stages is {}; without blocks it is 1", key.stages);
  return {};
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(has_tokens(key));
  LATHE_TRY(is_few(key) ? check_few(key) : check_many(key));
  for (const auto& [format, n] : matrices(key))
    if (n > 0 && tile_codes(format).bits == 0)
      return invalid("{} weights do not become operands of matmul", row(format).name);
  LATHE_TRY(check_matrices(key, 1 << 20));
  if (const int bytes = shared_bytes(key); bytes > kMostSharedBytes)
    return invalid("a block needs {} bytes of shared memory, more than {}", bytes,
                   kMostSharedBytes);
  if (!key.gated) return {};
  if (key.format_b != key.format)
    return invalid("gates are {} and ups {}; they must have one format", row(key.format).name,
                   row(key.format_b).name);
  return {};
}

// Few tokens: the warps of a block that multiply.
dev::FewWarps few_warps(const KernelKey& key) {
  return {key.warps - 1, key.splits, key.paired ? 2 : 1, key.gated ? 1 : 0};
}
// Of a block.
int row_tiles(const KernelKey& key) {
  return is_few(key) ? dev::few_row_tiles(few_warps(key)) : int{dev::kMatmulRowTiles};
}
// Of all matrices.
int row_blocks(const KernelKey& key) {
  int blocks = 0;
  for (const auto& [format, n] : matrices(key)) {
    blocks += dev::matmul_row_blocks(n, key.gated ? 1 : 0, row_tiles(key));
    if (key.gated) break;
  }
  return blocks;
}
int block_tokens(const KernelKey& key) {
  return is_few(key) ? dev::few_tokens(key.tokens) : int{dev::kMatmulTokens};
}

// The greatest of the matrices.
struct TileSizes {
  int subs = 2, slot_bytes = 0, pair_bytes = 0, tail_bytes = 0;
};
TileSizes tile_sizes(const KernelKey& key) {
  TileSizes out;
  for (const auto& [format, n] : matrices(key)) {
    const Result<TileShape> shape = tile_shape(format, n, key.k);
    if (n == 0 || !shape) continue;
    out.subs = shape->subs;
    const int bits = tile_codes(format).bits, tail = dev::matmul_tail_at(bits, out.subs);
    out.slot_bytes = std::max(out.slot_bytes, dev::slot_bytes(int(shape->tile_bytes)));
    out.pair_bytes = std::max(out.pair_bytes, dev::matmul_pair_bytes(bits));
    out.tail_bytes = std::max(out.tail_bytes, int(shape->tile_bytes) - tail);
  }
  return out;
}
// Few tokens: each block has one row block.
bool is_whole(const KernelKey& key) {
  return row_blocks(key) == key.blocks;
}
int shared_bytes(const KernelKey& key) {
  const TileSizes sizes = tile_sizes(key);
  if (!is_few(key)) return dev::matmul_shared(sizes.pair_bytes, sizes.tail_bytes, sizes.subs).bytes;
  return dev::few_shared(block_tokens(key), few_warps(key), sizes.slot_bytes, sizes.subs,
                         key.stages, is_whole(key) ? 1 : 0, meets_means(key) ? 1 : 0)
      .bytes;
}

Geometry geometry(const KernelKey& key) {
  Geometry out{.threads = static_cast<unsigned>(key.warps) * 32,
               .shared_bytes = static_cast<unsigned>(shared_bytes(key))};
  if (is_few(key)) {
    out.grid_x = static_cast<unsigned>(key.blocks);
    out.resident = key.stages > 1 ? 1 : 2;
  } else {
    out.grid_x = static_cast<unsigned>(ceil_div(key.tokens, int{dev::kMatmulTokens}));
    out.grid_y = static_cast<unsigned>(row_blocks(key));
    if (key.grouped) out.resident = 2;
  }
  return out;
}

std::vector<Param> params(const KernelKey& key) {
  std::vector<Param> out;
  add_weights(key, out);
  out.push_back(chunk_in());
  out.push_back(operands_in("x", is_few(key), key.tokens, key.k));
  add_biases(key, out);
  const std::int64_t values = std::int64_t{key.tokens} * rows_of(key);
  if (key.residual) out.push_back(vector_in("residual", values));
  if (is_few(key)) {
    const std::int64_t floats = dev::few_partial_floats(block_tokens(key), few_warps(key));
    out.push_back(vector_out("partial", key.blocks * floats));
    out.back().scratch = true;
    out.push_back({"counters", Access::read_write, Element::i32,
                   std::int64_t{row_blocks(key)} * dev::meeting_places(few_warps(key)) * 4, 4});
  }
  out.push_back(key.gated ? operands_out("y", is_few(key), key.tokens, key.n)
                          : vector_out("y", values));
  return out;
}

// Of each row block whether two blocks or more have parts of it.
std::vector<bool> shared_row_blocks(const KernelKey& key) {
  const int columns = dev::tile_subs_total(key.k) / tile_sizes(key).subs;
  const int groups = ceil_div(columns, key.splits);
  const int all = row_blocks(key) * groups, blocks = std::min(key.blocks, all);
  std::vector<bool> out;
  for (int group = 0; group < all; group += groups)
    out.push_back(dev::block_of_group(group, blocks, all) !=
                  dev::block_of_group(group + groups - 1, blocks, all));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/matmul.h", "matmul", {}};
  if (is_few(key)) call.function += fmt::format("_of_{}", block_tokens(key));
  if (key.paired)
    call.function += "_paired";
  else if (key.splits > 1)
    call.function += "_split";
  if (key.grouped) call.function += "_grouped";
  const bool second = key.n_b > 0, third = key.n_c > 0;
  call.arguments = parameters_of({true, second, third,  // weights
                                  true, true,           // chunk, x
                                  key.bias, key.bias && second, key.bias && third, key.residual});
  const int y = static_cast<int>(params(key).size()) - 1;
  call.arguments.push_back(parameter(y));
  const TileSizes sizes = tile_sizes(key);
  call.arguments.push_back(integer(key.k));
  call.arguments.push_back(integer(sizes.subs));
  add_matrix_numbers(key, call.arguments);
  call.arguments.push_back(integer(key.gated ? 1 : 0));
  call.arguments.push_back(integer(static_cast<int>(key.activation)));
  call.arguments.push_back(integer(meets_means(key) ? 1 : 0));
  if (is_few(key)) {
    call.arguments.push_back(integer(sizes.slot_bytes));
    call.arguments.push_back(parameter(y - 2));  // partial
    call.arguments.push_back(parameter(y - 1));  // counters
    call.arguments.push_back(integer(key.blocks));
    call.arguments.push_back(integer(key.warps - 1));
    call.arguments.push_back(integer(key.splits));
    call.arguments.push_back(integer(is_whole(key) ? 1 : 0));
    const std::vector<bool> shared = shared_row_blocks(key);
    call.arguments.push_back(integer(std::ranges::find(shared, true) != shared.end() ? 1 : 0));
    call.arguments.push_back(integer(key.stages));
    call.arguments.push_back(integer(key.early ? 1 : 0));
    call.waits = true;
  } else {
    call.arguments.push_back(integer(sizes.pair_bytes));
    call.arguments.push_back(integer(sizes.tail_bytes));
  }
  return call;
}

Cost cost(const KernelKey& key) {
  auto [bytes, products] = weight_totals(key);
  const std::int64_t m = key.tokens;
  bytes += m * key.k * 2 + rows_of(key) * ((key.bias ? 4 : 0) + (key.residual ? m * 4 : 0));
  return {bytes, m * rows_of(key) * (key.gated ? 2 : 4), 2 * m * products};
}

// What the device's arithmetic is held to: all in double precision, operands as they are.
void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  std::size_t next = 0;
  std::array<const std::byte*, 3> weights = {};
  for (std::size_t m = 0; m < 3; ++m)
    if (matrices(key)[m].n > 0) weights[m] = static_cast<const std::byte*>(arguments[next++]);
  const auto* chunk = static_cast<const std::int32_t*>(arguments[next++]);
  const int order = operand_tokens(is_few(key), key.tokens);
  const OperandRows operands = {static_cast<std::uint16_t*>(arguments[next++]),
                                dev::operand_width(key.k), order};
  std::array<const float*, 3> bias = {};
  for (std::size_t m = 0; m < 3; ++m)
    if (key.bias && matrices(key)[m].n > 0) bias[m] = static_cast<const float*>(arguments[next++]);
  const auto* residual = key.residual ? static_cast<const float*>(arguments[next++]) : nullptr;
  if (is_few(key)) {
    ++next;  // partial
    auto* counters = static_cast<std::int32_t*>(arguments[next++]);
    const std::vector<bool> shared = shared_row_blocks(key);
    const auto [first, last] = share(row_blocks(key), part, parts);
    for (std::int64_t block = first; block < last; ++block) {
      if (!shared[std::size_t(block)]) continue;
      const int places = dev::meeting_places(few_warps(key));
      for (int place = 0; place < places; ++place)
        counters[block * places + place] += dev::kArrivals;
    }
  }
  void* y = arguments[next];

  const auto k = static_cast<std::size_t>(key.k);
  const int out_width = dev::operand_width(key.n);
  const int tokens = std::min(chunk[0], key.tokens);
  std::vector<double> x(k * std::size_t(tokens));
  for (int token = 0; token < tokens; ++token)
    for (int i = 0; i < key.k; ++i)
      x[std::size_t(token) * k + std::size_t(i)] = operands.get(token, i);
  std::vector<float> w(k);
  std::vector<double> gates(std::size_t(tokens), 0);
  const auto unpack = [&](std::size_t m, std::int64_t r) {
    const FormatRow& format = row(matrices(key)[m].format);
    format.unpack(weights[m] + r * row_bytes(format.format, key.k), key.k, w.data());
  };
  const auto dot = [&](int token) { return dot_product(w, x.data() + std::size_t(token) * k); };
  if (key.gated) {
    const OperandRows out = {static_cast<std::uint16_t*>(y), out_width, order};
    const auto [first, last] = share(out_width / 16, part, parts);
    for (std::int64_t r = 16 * first; r < 16 * last; ++r) {
      if (r < key.n) unpack(0, r);
      for (int token = 0; r < key.n && token < tokens; ++token)
        gates[std::size_t(token)] = activated(dot(token), key.activation);
      if (r < key.n) unpack(1, r);
      for (int token = 0; token < tokens; ++token)
        out.set(token, int(r), r < key.n ? gates[std::size_t(token)] * dot(token) : 0);
      for (int token = 0; is_few(key) && r % 16 == 15 && token < tokens; ++token)
        out.set_mean(token, int(r) - 15);
    }
    return;
  }
  auto* out = static_cast<float*>(y);
  std::int64_t before = 0;
  for (std::size_t m = 0; m < 3; ++m) {
    const int n = matrices(key)[m].n;
    const auto [first, last] = share(n, part, parts);
    for (std::int64_t r = first; r < last; ++r) {
      unpack(m, r);
      for (int token = 0; token < tokens; ++token) {
        const std::int64_t at = std::int64_t{token} * rows_of(key) + before + r;
        double value = dot(token);
        if (bias[m]) value += static_cast<double>(bias[m][r]);
        if (residual) value += static_cast<double>(residual[at]);
        out[at] = static_cast<float>(value);
      }
    }
    before += n;
  }
}

Instructions key_instructions(const KernelKey& key) {
  if (!is_few(key)) return {};
  return {90, 80, "bulk copies"};
}

}  // namespace

const KernelRow kMatmulRow = {
    KernelType::matmul,
    "matmul",
    "up to three matrices of tiles times the operands of a chunk's tokens, with bias, residual or "
    "GLU",
    "k n n_b n_c format_b format_c tokens warps blocks stages splits paired grouped early bias "
    "residual gated activation",
    kAnyFormat,
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-3,
    "a weight is rounded three times to 11 bits: 3e-4, up to 1e-3 where scale and offset cancel; a "
    "gated row is the product of two such sums",
    no_template,
    80,
    "asynchronous copies",
    [](const KernelKey&) { return "mma wgmma"; },
    nullptr,
    key_instructions};

}  // namespace lathe
