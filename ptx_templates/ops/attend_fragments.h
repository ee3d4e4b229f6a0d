// Owns the operands of attention by the matrix units (ops/attend_matrix.h): what a lane has of K
// and V, the queries, the scores of a tile.
#pragma once

#include "ops/attend_vectors.h"
#include "ops/kv_pages.h"

namespace lathe::dev {

enum : int { kMatrixRuns = 4, kMatrixChunks = 2 };  // of 32 and 64 values of a head, at most

// What a lane has of 16 positions.
struct MatrixTile {
  u32x4 key[2][kMatrixRuns];      // positions g, g + 8: of each run the values 8t ...
  u32x4 value[4][kMatrixChunks];  // 2t, 2t + 1, 2t + 8, 2t + 9: of each chunk the values 8g ...
};

// The position of the tile that part i of the values has.
LATHE_DEVICE int value_position(int i) {
  return lane_index() % 4 * 2 + i % 2 + i / 2 * 8;
}
// How far behind a lane's first values those of a run and of a chunk lie, in values; where the head
// has none there, it is the head's first values that are taken.
LATHE_DEVICE int run_step(int run, int head_dim) {
  const int first = lane_index() % 4 * 8;
  return 32 * run + first < head_dim ? 32 * run : -first;
}
LATHE_DEVICE int chunk_step(int chunk, int head_dim) {
  const int first = lane_index() / 4 * 8;
  return 64 * chunk + first < head_dim ? 64 * chunk : -first;
}

// A KV head's rows of a cache. Of those past the last one the last is taken.
struct MatrixRows {
  const u8* at;
  i64 stride;  // bytes from position to position
  int last, head_dim;
  const i32* pages;  // where the cache lies in pages
};
LATHE_DEVICE const u8* matrix_row(const MatrixRows& rows, int position) {
  const int row = min_int(position, rows.last);
  return rows.at + (rows.pages ? paged_row(rows.pages, row) : row) * rows.stride;
}

LATHE_DEVICE void load_keys(const MatrixRows& rows, int tile, MatrixTile& out) {
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const u8* from = matrix_row(rows, tile + lane_index() / 4 + 8 * i) + lane_index() % 4 * 16;
    LATHE_UNROLL(4)
    for (int run = 0; run < ceil_div(rows.head_dim, 32); ++run)
      out.key[i][run] =
          load_relaxed(reinterpret_cast<const u32x4*>(from + run_step(run, rows.head_dim) * 2));
  }
}
LATHE_DEVICE void load_values(const MatrixRows& rows, int tile, MatrixTile& out) {
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const u8* from = matrix_row(rows, tile + value_position(i)) + lane_index() / 4 * 16;
    LATHE_UNROLL(2)
    for (int chunk = 0; chunk < ceil_div(rows.head_dim, 64); ++chunk)
      out.value[i][chunk] =
          load_relaxed(reinterpret_cast<const u32x4*>(from + chunk_step(chunk, rows.head_dim) * 2));
  }
}

// The new row, which other blocks have only in shared memory, in its place.
LATHE_DEVICE void patch_keys(const u8* packed, int head_dim, int tile, int position,
                             MatrixTile& out) {
  const u8* from = packed + lane_index() % 4 * 16;
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    if (tile + lane_index() / 4 + 8 * i != position) continue;
    LATHE_UNROLL(4)
    for (int run = 0; run < ceil_div(head_dim, 32); ++run)
      out.key[i][run] = *reinterpret_cast<const u32x4*>(from + run_step(run, head_dim) * 2);
  }
}
LATHE_DEVICE void patch_values(const u8* packed, int head_dim, int tile, int position,
                               MatrixTile& out) {
  const u8* from = packed + lane_index() / 4 * 16;
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    if (tile + value_position(i) != position) continue;
    LATHE_UNROLL(2)
    for (int chunk = 0; chunk < ceil_div(head_dim, 64); ++chunk)
      out.value[i][chunk] = *reinterpret_cast<const u32x4*>(from + chunk_step(chunk, head_dim) * 2);
  }
}

// Pairs of f16 and what they leave of two numbers.
struct SplitPair {
  u32 high, low;
};
LATHE_DEVICE SplitPair split_pair(f32 a, f32 b) {
  const u32 high = half2(a, b);
  return {high, half2(a - f16_to_f32(high), b - f16_to_f32(high >> 16))};
}

// The queries in shared memory, `stride` floats each with zeros up to whole runs, become operand A
// of the scores where they are: of each eight values the four pairs of f16, then those of what
// these leave; behind them the factor that makes base-2 logarithms of weights of the products. A
// query is taken times the power of two that brings its greatest value near the top of f16. All
// warps of the block call, each with the heads that it has normed and rotated itself.
LATHE_DEVICE void split_queries(f32* queries, int stride, int heads, int warps) {
  LATHE_UNROLL(1)
  for (int head = warp_index(); head < heads; head += warps) {
    f32* values = queries + head * stride;
    f32* own = values + 8 * lane_index();
    const bool used = 8 * lane_index() + 8 < stride;
    warp_barrier();
    f32 v[8], top = 0;
    LATHE_UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
      const f32x4 four = used ? shared_f32x4(own + i) : f32x4{0, 0, 0, 0};
      v[i] = four.x;
      v[i + 1] = four.y;
      v[i + 2] = four.z;
      v[i + 3] = four.w;
    }
    LATHE_UNROLL(8)
    for (int i = 0; i < 8; ++i) {
      const f32 magnitude = v[i] < 0 ? -v[i] : v[i];
      top = magnitude > top ? magnitude : top;
    }
    const int exponent = max_int(static_cast<int>(as_u32(warp_max(top)) >> 23), 64);
    const f32 up = as_f32(static_cast<u32>(268 - exponent) << 23);  // the greatest becomes 2^14 ...
    SplitPair pair[4];
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) pair[i] = split_pair(v[2 * i] * up, v[2 * i + 1] * up);
    if (used) {
      u32x4* to = reinterpret_cast<u32x4*>(own);
      to[0] = {pair[0].high, pair[1].high, pair[2].high, pair[3].high};
      to[1] = {pair[0].low, pair[1].low, pair[2].low, pair[3].low};
    }
    if (lane_index() == 0)
      values[stride - 4] = as_f32(static_cast<u32>(exponent - 14) << 23) * 1.44269504f;
  }
}

// Operand A of the scores: rows g are the head's f16, rows g + 8 what they leave.
struct MatrixQuery {
  u32x4 high[kMatrixRuns], low[kMatrixRuns];
  f32 factor;
};
LATHE_DEVICE MatrixQuery matrix_query(const f32* query, int stride, int head_dim) {
  MatrixQuery out;
  LATHE_UNROLL(4)
  for (int run = 0; run < ceil_div(head_dim, 32); ++run) {
    const u32x4* from = reinterpret_cast<const u32x4*>(query + 32 * run + lane_index() % 4 * 8);
    out.high[run] = from[0];
    out.low[run] = from[1];
  }
  out.factor = query[stride - 4];
  return out;
}

// The same of a query that is f16 already, and has its scale: it leaves nothing.
LATHE_DEVICE MatrixQuery matrix_query(const u16* query, int head_dim) {
  MatrixQuery out;
  LATHE_UNROLL(4)
  for (int run = 0; run < ceil_div(head_dim, 32); ++run) {
    const int at = 32 * run + lane_index() % 4 * 8;
    out.high[run] = out.low[run] = {0, 0, 0, 0};
    if (at < head_dim) out.high[run] = *reinterpret_cast<const u32x4*>(query + at);
  }
  out.factor = 1.44269504f;
  return out;
}

LATHE_DEVICE u32 word_of(const u32x4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The head's scores of positions 2t, 2t + 1, 2t + 8 and 2t + 9, over its factor. Four chains of
// products take turns, for each waits for its own last one.
LATHE_DEVICE void score_tile(const MatrixQuery& query, const MatrixTile& tile, int head_dim,
                             f32 (&score)[4]) {
  f32 sum[2][2][4];  // of even and of odd products, of positions up to 7 and from 8 on
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) sum[0][0][i] = sum[0][1][i] = sum[1][0][i] = sum[1][1][i] = 0;
  LATHE_UNROLL(4)
  for (int run = 0; run < ceil_div(head_dim, 32); ++run) {
    LATHE_UNROLL(2)
    for (int half = 0; half < 2; ++half) {
      const u32x4 &high = query.high[run], &low = query.low[run];
      LATHE_UNROLL(2)
      for (int j = 0; j < 2; ++j)
        mma_f16_k16(sum[half][j], word_of(high, 2 * half), word_of(low, 2 * half),
                    word_of(high, 2 * half + 1), word_of(low, 2 * half + 1),
                    word_of(tile.key[j][run], 2 * half), word_of(tile.key[j][run], 2 * half + 1));
    }
  }
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const int j = i / 2, c = i % 2;
    score[i] = (sum[0][j][c] + sum[1][j][c]) + (sum[0][j][2 + c] + sum[1][j][2 + c]);
  }
}

}  // namespace lathe::dev
