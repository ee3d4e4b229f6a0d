// Owns the shapes of matmul (ops/matmul.h) and of its operands: how blocks share the work, and
// where things lie in their shared memory.
#pragma once

#include "ops/launch_shapes.h"

namespace lathe::dev {

// The f16 operands of matmul: a row of k values per token, with zeros up to whole pairs of
// sub-blocks. Of 16 values, 4 t + c + 2 d stands at 8 c + 2 t + d, so that the lanes of a fragment,
// which have four consecutive codes of a weight row, meet the right values: the first and third as
// one pair, for these lie 16 bits apart, and the others. An operand is its value over 16: up to
// 2^20 it is finite.
LATHE_SHAPE int operand_width(int k) {
  return round_up(k, 64);
}
LATHE_SHAPE int operand_at(int i) {
  return (i & ~15) | (i & 1) << 3 | (i >> 2 & 3) << 1 | (i >> 1 & 1);
}
// Operands of few tokens, which have room for `tokens`, a multiple of 8: 64 values of all tokens
// after the other, as a block's shared memory has them, so that whole tile columns come by one
// copy. Of a token's eight pieces of eight values the order tells banks apart. `tokens` 0: a row
// each.
LATHE_SHAPE long long operand_place(int token, int i, int width, int tokens) {
  const int at = operand_at(i);
  if (tokens == 0) return static_cast<long long>(token) * width + at;
  return (at & ~63) * tokens + token * 64 + ((at >> 3 ^ token) & 7) * 8 + (at & 7);
}
// Behind operands of few tokens come their means: of each 16 values as operands have them one f16,
// which the offsets of weights are multiplied by. The four of 64 values stand together, those of
// all tokens after the other; then a gap, for the banks of four times 64 values.
LATHE_SHAPE int operand_means_of_64(int tokens) {
  return 4 * tokens + 16;
}
LATHE_SHAPE long long operand_mean_place(int token, int i, int width, int tokens) {
  return static_cast<long long>(width) * tokens + (i >> 6) * operand_means_of_64(tokens) +
         token * 4 + (i >> 4 & 3);
}
LATHE_SHAPE long long few_operands(int width, int tokens) {
  return operand_mean_place(0, width, width, tokens);
}

// A block of matmul takes 128 tokens and eight row tiles. It goes along k in stages of 64 values:
// their operands, the codes of a pair of sub-blocks of each row tile; apart from them, what else a
// tile has (fifth bits, scales) for all its stages.
enum : int {
  kMatmulTokens = 128,
  kMatmulRowTiles = 8,
  kMatmulThreads = 256,
  kMatmulStages = 4,
  kMatmulOperandBytes = kMatmulTokens * 128,
};
// Blocks of so many rows, with `tiles` row tiles each; of gates, which have zeros past the last of
// them, and as many ups.
LATHE_SHAPE int matmul_row_blocks(int n, int gated, int tiles = kMatmulRowTiles) {
  return gated ? ceil_div(operand_width(n) / 16, tiles / 2) : ceil_div(ceil_div(n, 16), tiles);
}
LATHE_SHAPE int matmul_pair_bytes(int code_bits) {
  return code_bits > 5 ? 1024 : 512;
}
LATHE_SHAPE int matmul_tail_at(int code_bits, int subs) {
  return (code_bits == 5 ? 4 : code_bits) * 64 * subs;
}
// Tiles of a row that can be under way at once, when each has so many stages.
LATHE_SHAPE int matmul_tail_slots(int pairs) {
  return ceil_div(kMatmulStages - 1, pairs) + 1;
}
struct MatmulShared {
  int codes;  // within a stage
  int stage_bytes;
  int tails, tail_bytes;  // of a row tile
  int bytes;
};
LATHE_SHAPE MatmulShared matmul_shared(int pair_bytes, int tail_bytes, int subs) {
  MatmulShared m{};
  m.codes = kMatmulOperandBytes;
  m.stage_bytes = m.codes + kMatmulRowTiles * pair_bytes;
  m.tails = kMatmulStages * m.stage_bytes;
  m.tail_bytes = tail_bytes;
  m.bytes = m.tails + matmul_tail_slots(subs / 2) * kMatmulRowTiles * tail_bytes;
  return m;
}

// A block of matmul with few tokens takes all of them and some row tiles. Beside its warps that
// multiply one copies operands. The block goes along k by stages of a tile column, or as many as
// there are parts: the operands of their values, then the warps' tiles, each in a slot
// (slot_bytes()). Two blocks have 113 KiB each; with 8 tokens a fifth stage that fits into the last
// two of them made q4_k slower.
enum : int {
  kFewTokens = 32,
  kFewBytes = 111 * 1024,
  kFewParts = 4,  // at most
  kFewStages = 8,
  kFewWarps = 16,  // that multiply, at most
};
// More than half of a multiprocessor's shared memory.
enum : int { kAloneBytes = 117 * 1024 };
// Tokens that such a block has room for.
LATHE_SHAPE int few_tokens(int tokens) {
  return tokens > 16 ? 32 : tokens > 8 ? 16 : 8;
}
// The warps of a block that multiply. Each has `tiles` row tiles, one or two, of which it has all
// tile columns, or every so many where as many `parts` share them.
struct FewWarps {
  int all, parts, tiles;
  int gated;  // two row tiles of a warp are a gate's and its up's
};
LATHE_SHAPE int few_row_warps(const FewWarps& warps) {
  return warps.all / warps.parts;
}
LATHE_SHAPE int few_row_tiles(const FewWarps& warps) {
  return few_row_warps(warps) * warps.tiles;
}
// Operands of a tile column, of all tokens, and their means.
LATHE_SHAPE int few_operand_bytes(int tokens, int subs) {
  return tokens * 64 * subs;
}
LATHE_SHAPE int few_mean_bytes(int tokens, int subs) {
  return operand_means_of_64(tokens) * subs;
}
// Row tiles whose sums warps of a block give to others: those of the parts of each but the first,
// or of ups.
LATHE_SHAPE int few_given_tiles(const FewWarps& warps) {
  if (warps.parts > 1) return (warps.parts - 1) * few_row_tiles(warps);
  return warps.gated && warps.tiles == 1 ? warps.all / 2 : 0;
}
struct FewShared {
  int means, tiles, slot_bytes;  // within a stage
  int stage_bytes, stages;
  int whole;     // whether each block has one row block
  int room;      // for what warps of a block give each other
  int barriers;  // of each stage two, and one more
  int bytes;
};
// `stages` of a block that has a multiprocessor to itself, or 1: as many as leave room for another.
// `whole`: each block has one row block, so that nothing is under way when its warps give each
// other sums. `means`: whether those of operands are wanted.
LATHE_SHAPE FewShared few_shared(int tokens, const FewWarps& warps, int slot_bytes, int subs,
                                 int stages, int whole, int means) {
  FewShared m{};
  m.means = warps.parts * few_operand_bytes(tokens, subs);
  m.tiles = m.means + (means ? round_up(warps.parts * few_mean_bytes(tokens, subs), kCopyLine) : 0);
  m.slot_bytes = slot_bytes;
  m.stage_bytes = round_up(m.tiles + warps.all * warps.tiles * slot_bytes, kCopyLine);
  const int given = few_given_tiles(warps) * 16 * 4 * tokens, ends = (2 * kFewStages + 1) * 8;
  const int room = whole ? 0 : given;
  const bool alone = stages > 1;
  m.stages =
      alone ? stages
            : max_int(2, min_int(int{kFewStages}, (int{kFewBytes} - room - ends) / m.stage_bytes));
  const int ring = m.stages * m.stage_bytes;
  m.whole = whole;
  m.room = whole ? 0 : ring;
  m.barriers = max_int(ring, m.room + given);
  m.bytes = max_int(m.barriers + ends, alone ? int{kAloneBytes} : 0);
  return m;
}
// How the blocks share all groups of columns of all row blocks: those before the ones of block
// `block`.
LATHE_SHAPE int groups_before(int block, int blocks, int groups) {
  return static_cast<int>(static_cast<long long>(groups) * block / blocks);
}
// The block that has this group.
LATHE_SHAPE int block_of_group(int group, int blocks, int groups) {
  return static_cast<int>(((static_cast<long long>(group) + 1) * blocks - 1) / groups);
}
// Places of a row block at each of which warps of all blocks meet: those that have the same row
// tiles, and gates and their ups together.
LATHE_SHAPE int meeting_places(const FewWarps& warps) {
  return warps.gated && warps.tiles == 1 ? few_row_warps(warps) / 2 : few_row_warps(warps);
}
// What a block leaves of row blocks that others have parts of, two at most.
LATHE_SHAPE int few_partial_floats(int tokens, const FewWarps& warps) {
  return 2 * few_row_tiles(warps) * 16 * tokens;
}

}  // namespace lathe::dev
