// Owns y[n][k]: the values of tiles, as f32 or f16; those that ops/dequantize.h gives of the
// blocks.
#pragma once

#include "ops/dequantize.h"
#include "ops/embed_tiles.h"

namespace lathe::dev {

// Each row has blocks of threads of its own; a thread has four values.
template <class Raw, class Tiles>
LATHE_DEVICE void dequantize_tiles(const u8* tiles, void* y, int k, int subs, int warps,
                                   int halves) {
  const int threads = warps * kWarp, per_row = ceil_div(k / 4, threads);
  const int row = block_x() / per_row;
  const int column = (block_x() % per_row * threads + thread_index()) * 4;
  if (column >= k) return;
  f32 values[4];
  tile_values<Raw, Tiles>(tiles, row, column, k, subs, values);
  store_four(y, static_cast<i64>(row) * k + column, values, halves);
}

#define LATHE_UNTILE_OP(name, Raw, Tiles)                                           \
  LATHE_OP name(const u8* tiles, void* y, int k, int subs, int warps, int halves) { \
    dequantize_tiles<Raw, Tiles>(tiles, y, k, subs, warps, halves);                 \
  }

LATHE_UNTILE_OP(dequantize_tiles_q4_0, Q4_0, Q4_0Tiles)
LATHE_UNTILE_OP(dequantize_tiles_q4_1, Q4_1, Q4_1Tiles)
LATHE_UNTILE_OP(dequantize_tiles_q5_0, Q5_0, Q5_0Tiles)
LATHE_UNTILE_OP(dequantize_tiles_q5_1, Q5_1, Q5_1Tiles)
LATHE_UNTILE_OP(dequantize_tiles_q8_0, Q8_0, Q8_0Tiles)
LATHE_UNTILE_OP(dequantize_tiles_q4_k, Q4_K, Q4_KTiles)
LATHE_UNTILE_OP(dequantize_tiles_q5_k, Q5_K, Q5_KTiles)
LATHE_UNTILE_OP(dequantize_tiles_q6_k, Q6_K, Q6_KTiles)
LATHE_UNTILE_OP(dequantize_tiles_q2_k, Q2_K, Q2_KTiles)
LATHE_UNTILE_OP(dequantize_tiles_q3_k, Q3_K, Q3_KTiles)
LATHE_UNTILE_OP(dequantize_tiles_iq4_nl, IQ4_NL, IQ4_NLTiles)
LATHE_UNTILE_OP(dequantize_tiles_iq4_xs, IQ4_XS, IQ4_XSTiles)
LATHE_UNTILE_OP(dequantize_tiles_mxfp4, MXFP4, MXFP4Tiles)

// f16 and bf16, whose rows may have any length: a thread has one value.
#define LATHE_NUMBERS_OP(name, Decoder)                                             \
  LATHE_OP name(const u8* tiles, void* y, int k, int subs, int warps, int halves) { \
    const int threads = warps * kWarp, per_row = ceil_div(k, threads);              \
    const int row = block_x() / per_row;                                            \
    const int i = block_x() % per_row * threads + thread_index();                   \
    if (i < k)                                                                      \
      store_one(y, static_cast<i64>(row) * k + i,                                   \
                half_tile_value<Decoder>(tiles, row, i, k, subs), halves);          \
  }

LATHE_NUMBERS_OP(dequantize_tiles_f16, F16)
LATHE_NUMBERS_OP(dequantize_tiles_bf16, BF16)

}  // namespace lathe::dev
