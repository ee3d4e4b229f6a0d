// Owns y[token] = W x[token] for the tokens of a chunk: up to three matrices of tiles, read as
// decoding reads them, times f16 operands, summed in f32 by the matrix units.
//
// A block takes 128 tokens and eight row tiles. Where four warps can multiply together (sm_90a),
// each of the eight warps has a row tile of its own; else two share two of them and have 64 of the
// tokens each. Operands and codes come by asynchronous copies, a few stages of 64 values ahead. The
// words of a lane are its part of fragment A as they lie, and the operands' order is the one that
// goes with it, so nothing is exchanged among lanes but the scales.
#pragma once

#include "ops/math.h"
#include "ops/tile_halves.h"

namespace lathe::dev {

// What a matmul kernel is given beside the matrix; numbers are constants.
struct MatmulCall {
  const u8* x;          // f16 operands, `width` per token
  const f32* residual;  // rows of y
  void* y;              // f32 rows of `stride`, or f16 operands of `out_width` when gated
  int tokens;           // of this chunk
  int width, stride, out_width;
  int subs, columns;  // of a tile, and tiles of a row
  int gated, activation;
};

// One matrix, or with `up` a gate and its up matrix, of which a block takes four row tiles each.
struct MatmulMatrix {
  const u8* weights;
  const u8* up;
  const f32* bias;
  int n;
  int first;  // row of y
};

struct MatmulBlock {
  MatmulCall call;
  MatmulMatrix matrix;
  MatmulShared shape;
  int row_block;  // of the matrix
  int token;      // the block's first
};

// How a block's work is shared out.
template <class Format, bool kGrouped>
struct MatmulWay {
  using Tile = Format;
  enum : int {
    grouped = kGrouped,
    split = kGrouped ? 1 : 2,  // warps that share row tiles
    tiles = split,             // of a warp
    threads = 256,
    tokens = kMatmulTokens / split,  // of a warp
    fragments = tokens / 8,
    // Products that nobody has waited for read a stage while the next one is begun.
    ahead = kMatmulStages - (kGrouped ? 2 : 1),
    pair_bytes = Tile::bits > 5 ? 1024 : 512,
    copies = kMatmulRowTiles * pair_bytes / 16 / threads,  // of codes, by a thread in a stage
  };
};
template <class Way>
using MatmulSums = f32[Way::tiles][Way::fragments][4];

template <class Way>
LATHE_DEVICE int matmul_tile_bytes(const MatmulBlock& b) {
  return tile_bytes(Way::Tile::bits, Way::Tile::Shape::scale_bytes, b.call.subs);
}
// Row tile `local` of the block: of which matrix, and which of it. Past the last the last again.
template <class Way>
LATHE_DEVICE const u8* matmul_tile_row(const MatmulBlock& b, int local) {
  const u8* weights = b.matrix.weights;
  int index = b.row_block * kMatmulRowTiles + local;
  if (b.matrix.up) {
    constexpr int kHalf = kMatmulRowTiles / 2;
    if (local >= kHalf) weights = b.matrix.up;
    index = b.row_block * kHalf + local % kHalf;
  }
  index = min_int(index, tile_row_tiles(b.matrix.n) - 1);
  return weights + static_cast<i64>(index) * b.call.columns * matmul_tile_bytes<Way>(b);
}

// Where a thread's copies come from: operands of the stage to be started, and the row tiles.
template <class Way>
struct MatmulSource {
  const u8* x;
  const u8* row[Way::copies];
};
template <class Way>
LATHE_DEVICE void open_source(const MatmulBlock& b, MatmulSource<Way>& source) {
  const i64 token = b.token + thread_index() / 8;
  source.x = b.call.x + token * b.call.width * 2 + thread_index() % 8 * 16;
  LATHE_UNROLL(4)
  for (int i = 0; i < Way::copies; ++i) {
    const int at = (i * Way::threads + thread_index()) * 16;
    source.row[i] = matmul_tile_row<Way>(b, at / Way::pair_bytes) + at % Way::pair_bytes;
  }
}

template <class Way>
LATHE_DEVICE u8* matmul_tails(const MatmulBlock& b, int column) {
  const int slot = column % matmul_tail_slots(b.call.subs / 2);
  return shared_memory() + b.shape.tails + slot * kMatmulRowTiles * b.shape.tail_bytes;
}
template <class Way>
LATHE_DEVICE void start_tails(const MatmulBlock& b, int column) {
  const int bytes = matmul_tile_bytes<Way>(b), at = matmul_tail_at(Way::Tile::bits, b.call.subs);
  const int pieces = (bytes - at) / 16;
  u8* to = matmul_tails<Way>(b, column);
  LATHE_UNROLL(2)
  for (int i = 0; i < ceil_div(kMatmulRowTiles * pieces, int{Way::threads}); ++i) {
    const int piece = i * Way::threads + thread_index(), local = piece / pieces;
    if (local >= kMatmulRowTiles) break;
    copy_async(to + local * b.shape.tail_bytes + piece % pieces * 16,
               matmul_tile_row<Way>(b, local) + column * bytes + at + piece % pieces * 16);
  }
}

// Starts the copies of one stage, if there is one: after that of the stage before.
template <class Way>
LATHE_DEVICE void start_stage(const MatmulBlock& b, int stage, MatmulSource<Way>& source) {
  const int pairs = b.call.subs / 2;
  if (stage < b.call.columns * pairs) {
    u8* to = shared_memory() + stage % kMatmulStages * b.shape.stage_bytes;
    const int row = thread_index() / 8, part = thread_index() % 8 ^ (row & 7);
    LATHE_UNROLL(4)
    for (int i = 0; i < kMatmulTokens * 8 / Way::threads; ++i)
      copy_async(to + (32 * i + row) * 128 + part * 16, source.x + i * 64 * b.call.width);
    source.x += 128;
    const int column = stage / pairs, pair = stage % pairs;
    const int at = column * matmul_tile_bytes<Way>(b) + pair_at(Way::Tile::bits, pair);
    LATHE_UNROLL(4)
    for (int i = 0; i < Way::copies; ++i)
      copy_async(to + b.shape.codes + (i * Way::threads + thread_index()) * 16, source.row[i] + at);
    if (pair == 0) start_tails<Way>(b, column);
  }
  copy_async_group();
}

// The warp's part of a stage.
template <class Way>
struct MatmulStage {
  const u8* operands;  // of all tokens
  const u8* codes;     // of the warp's row tiles
  const u8* tails;
  int pair;
};
template <class Way>
LATHE_DEVICE MatmulStage<Way> matmul_stage(const MatmulBlock& b, int stage) {
  const int first = warp_index() / Way::split * Way::tiles, pairs = b.call.subs / 2;
  const u8* from = shared_memory() + stage % kMatmulStages * b.shape.stage_bytes;
  return {from, from + b.shape.codes + first * Way::pair_bytes,
          matmul_tails<Way>(b, stage / pairs) + first * b.shape.tail_bytes, stage % pairs};
}

// Operand A of row tile r and sub-block p of the pair.
template <class Way>
LATHE_DEVICE void matmul_operand(const MatmulBlock& b, const MatmulStage<Way>& s, int r, int p,
                                 const u32 (&scales)[4], u32 (&a)[2][4]) {
  PairWords words;
  load_pair<typename Way::Tile>(s.codes + r * Way::pair_bytes, s.tails + r * b.shape.tail_bytes,
                                b.call.subs, s.pair, words);
  const int owner = (lane_index() & ~3) | s.pair;
  const u32 factors[2] = {shuffle(scales[p], owner), shuffle(scales[2 + p], owner)};
  tile_operand<typename Way::Tile>(words, p, factors, a);
}

// The products of one stage: 64 values of the warp's row tiles with its tokens.
template <class Way>
LATHE_DEVICE void multiply_stage(const MatmulBlock& b, const MatmulStage<Way>& s,
                                 const u32 (&scales)[Way::tiles][4], MatmulSums<Way>& sum) {
  LATHE_UNROLL(2)
  for (int p = 0; p < 2; ++p) {
    if constexpr (Way::grouped != 0) {
      group_wait<1>();  // with what these registers were before
      u32 a[Way::tiles][2][4];
      LATHE_UNROLL(4)
      for (int r = 0; r < Way::tiles; ++r) matmul_operand<Way>(b, s, r, p, scales[r], a[r]);
      group_begin();
      LATHE_UNROLL(2)
      for (int h = 0; h < 2; ++h) {
        LATHE_UNROLL(4)
        for (int r = 0; r < Way::tiles; ++r)
          group_multiply(sum[r], a[r][h][0], a[r][h][1], a[r][h][2], a[r][h][3], s.operands,
                         32 * p + 16 * h);
      }
      group_end();
    } else {
      const int lane = lane_index();
      const u8* column = s.operands + (warp_index() % Way::split * Way::tokens + lane % 8) * 128 +
                         ((4 * p + lane / 8) ^ lane % 8) * 16;
      u32 x[Way::fragments][4];
      LATHE_UNROLL(8)
      for (int j = 0; j < Way::fragments; ++j) load_columns(x[j], column + j * 1024);
      LATHE_UNROLL(4)
      for (int r = 0; r < Way::tiles; ++r) {
        u32 a[2][4];
        matmul_operand<Way>(b, s, r, p, scales[r], a);
        LATHE_UNROLL(8)
        for (int j = 0; j < Way::fragments; ++j) {
          mma_f16_k16(sum[r][j], a[0][0], a[0][1], a[0][2], a[0][3], x[j][0], x[j][1]);
          mma_f16_k16(sum[r][j], a[1][0], a[1][1], a[1][2], a[1][3], x[j][2], x[j][3]);
        }
      }
    }
  }
}

template <class Way>
LATHE_DEVICE void store_rows(const MatmulBlock& b, const MatmulSums<Way>& sum) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int tile = b.row_block * kMatmulRowTiles + warp_index() / Way::split * Way::tiles;
  const int token = b.token + warp_index() % Way::split * Way::tokens + 2 * t;
  f32* y = static_cast<f32*>(b.call.y);
  LATHE_UNROLL(4)
  for (int r = 0; r < Way::tiles; ++r) {
    LATHE_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      const int row = (tile + r) * kTileRows + g + 8 * i;
      if (row >= b.matrix.n) continue;
      const f32 bias = b.matrix.bias ? b.matrix.bias[row] : 0.0f;
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(2)
        for (int c = 0; c < 2; ++c) {
          const int at = token + 8 * j + c;
          if (at >= b.call.tokens) continue;
          const i64 place = static_cast<i64>(at) * b.call.stride + b.matrix.first + row;
          f32 value = fma(sum[r][j][2 * i + c], 2.0f, bias);
          if (b.call.residual) value = value + b.call.residual[place];
          y[place] = value;
        }
      }
    }
  }
}

// activation(gate) * up as operands, with zeros past the last row. The first four warps have the
// gates, each the ups' sums of the fourth warp after it, which come by shared memory.
template <class Way>
LATHE_DEVICE void store_gated(const MatmulBlock& b, const MatmulSums<Way>& sum) {
  constexpr int kSums = Way::tiles * Way::fragments * 4 * kWarp;  // of a warp
  f32* ups = reinterpret_cast<f32*>(shared_memory()) + warp_index() % 4 * kSums + lane_index();
  block_barrier();  // nobody reads a stage any more
  if (warp_index() >= 4) {
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) {
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) ups[((r * Way::fragments + j) * 4 + i) * kWarp] = sum[r][j][i];
      }
    }
  }
  block_barrier();
  if (warp_index() >= 4) return;
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int tile = b.row_block * (kMatmulRowTiles / 2) + warp_index() / Way::split * Way::tiles;
  const int token = b.token + warp_index() % Way::split * Way::tokens + 2 * t;
  u16* y = static_cast<u16*>(b.call.y);
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r) {
    LATHE_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      const int row = (tile + r) * kTileRows + g + 8 * i;
      if (row >= b.call.out_width) continue;
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(2)
        for (int c = 0; c < 2; ++c) {
          const int at = token + 8 * j + c;
          if (at >= b.call.tokens) continue;
          const f32 gate = sum[r][j][2 * i + c] * 2.0f;
          const f32 up = ups[((r * Way::fragments + j) * 4 + 2 * i + c) * kWarp] * 0.125f;
          // `up` is twice its sum, over 16.
          const f32 value = (b.call.activation ? gelu_tanh(gate) : silu(gate)) * up;
          y[static_cast<i64>(at) * b.call.out_width + operand_at(row)] =
              f32_to_f16(row < b.matrix.n ? value : 0.0f);
        }
      }
    }
  }
}

template <class Way>
LATHE_DEVICE void matmul_block(const MatmulBlock& b) {
  MatmulSource<Way> source;
  open_source<Way>(b, source);
  u32 scales[Way::tiles][4];
  MatmulSums<Way> sum;
  LATHE_UNROLL(4)
  for (int r = 0; r < Way::tiles; ++r) {
    LATHE_UNROLL(16)
    for (int j = 0; j < Way::fragments; ++j)
      sum[r][j][0] = sum[r][j][1] = sum[r][j][2] = sum[r][j][3] = 0;
  }
  LATHE_UNROLL(4)
  for (int stage = 0; stage < Way::ahead; ++stage) start_stage<Way>(b, stage, source);
  const bool works = b.token + warp_index() % Way::split * Way::tokens < b.call.tokens;
  LATHE_UNROLL(1)
  for (int stage = 0; stage < b.call.columns * (b.call.subs / 2); ++stage) {
    copy_async_wait<Way::ahead - 1>();
    if constexpr (Way::grouped != 0) group_operands_ready();
    block_barrier();  // the stage is there, and all are done with the one before `ahead` of it
    start_stage<Way>(b, stage + Way::ahead, source);
    if (!works) continue;
    const MatmulStage<Way> s = matmul_stage<Way>(b, stage);
    if (s.pair == 0) {
      LATHE_UNROLL(4)
      for (int r = 0; r < Way::tiles; ++r)
        lane_scales<typename Way::Tile>(s.tails + r * b.shape.tail_bytes, b.call.subs, scales[r]);
    }
    multiply_stage<Way>(b, s, scales, sum);
  }
  if constexpr (Way::grouped != 0) {
    group_wait<0>();
    LATHE_UNROLL(4)
    for (int r = 0; r < Way::tiles; ++r) {
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) group_sum(sum[r][j][i]);
      }
    }
  }
  if (b.call.gated)
    store_gated<Way>(b, sum);
  else if (works)
    store_rows<Way>(b, sum);
}

template <bool kGrouped>
LATHE_DEVICE void matmul_of(const MatmulBlock& b, int format, u32 formats) {
#define LATHE_MATMUL_CASE(number, Tile)                  \
  if ((formats >> number & 1u) != 0 && format == number) \
    return matmul_block<MatmulWay<Tile, kGrouped>>(b);
  LATHE_MATMUL_CASE(kTileQ4_0, OperandQ4_0)
  LATHE_MATMUL_CASE(kTileQ4_1, OperandQ4_1)
  LATHE_MATMUL_CASE(kTileQ5_0, OperandQ5_0)
  LATHE_MATMUL_CASE(kTileQ5_1, OperandQ5_1)
  LATHE_MATMUL_CASE(kTileQ8_0, OperandQ8_0)
  LATHE_MATMUL_CASE(kTileQ4_K, OperandQ4_K)
  LATHE_MATMUL_CASE(kTileQ5_K, OperandQ5_K)
  LATHE_MATMUL_CASE(kTileQ6_K, OperandQ6_K)
#undef LATHE_MATMUL_CASE
}

// chunk[0] tokens, at most as many as the grid has room for.
template <bool kGrouped>
LATHE_DEVICE void matmul_chunk(const u8* w0, const u8* w1, const u8* w2, const i32* chunk,
                               const u8* x, const f32* bias0, const f32* bias1, const f32* bias2,
                               const f32* residual, void* y, int k, int subs, int n0, int n1,
                               int n2, int format0, int format1, int format2, int gated,
                               int activation, int pair_bytes, int tail_bytes) {
  if (block_x() * kMatmulTokens >= chunk[0]) return;
  const int blocks0 = matmul_row_blocks(n0, gated);
  const int blocks1 = matmul_row_blocks(n1, gated);
  int row_block = block_y(), format = format0;
  MatmulMatrix matrix = {w0, gated ? w1 : nullptr, bias0, n0, 0};
  if (!gated && row_block >= blocks0) {
    row_block -= blocks0;
    matrix = {w1, nullptr, bias1, n1, n0};
    format = format1;
    if (row_block >= blocks1) {
      row_block -= blocks1;
      matrix = {w2, nullptr, bias2, n2, n0 + n1};
      format = format2;
    }
  }
  const MatmulCall call = {x,
                           residual,
                           y,
                           chunk[0],
                           operand_width(k),
                           n0 + n1 + n2,
                           operand_width(n0),
                           subs,
                           tile_subs_total(k) / subs,
                           gated,
                           activation};
  const MatmulBlock block = {call, matrix, matmul_shared(pair_bytes, tail_bytes, subs), row_block,
                             block_x() * kMatmulTokens};
  const u32 formats = 1u << format0 | 1u << format1 | 1u << format2;
  matmul_of<kGrouped>(block, format, formats);
}

// Two ops: what four warps do together has no instructions elsewhere.
#define LATHE_MATMUL_OP(name, kGrouped)                                                         \
  LATHE_OP name(const u8* w0, const u8* w1, const u8* w2, const i32* chunk, const u8* x,        \
                const f32* bias0, const f32* bias1, const f32* bias2, const f32* residual,      \
                void* y, int k, int subs, int n0, int n1, int n2, int format0, int format1,     \
                int format2, int gated, int activation, int pair_bytes, int tail_bytes) {       \
    matmul_chunk<kGrouped>(w0, w1, w2, chunk, x, bias0, bias1, bias2, residual, y, k, subs, n0, \
                           n1, n2, format0, format1, format2, gated, activation, pair_bytes,    \
                           tail_bytes);                                                         \
  }
LATHE_MATMUL_OP(matmul, false)
LATHE_MATMUL_OP(matmul_grouped, true)

}  // namespace lathe::dev
