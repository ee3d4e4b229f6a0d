// Owns what becomes of a block's sums in matmul: rows with bias and residual, or gated rows as
// operands.
#pragma once

#include "ops/math.h"
#include "ops/matmul_block.h"

namespace lathe::dev {

template <class Way>
LATHE_DEVICE void store_rows(const MatmulBlock& b, const MatmulSums<Way>& sum) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int token = b.token + warp_index() % Way::split * Way::tokens + 2 * t;
  f32* y = static_cast<f32*>(b.call.y);
  LATHE_UNROLL(4)
  for (int r = 0; r < Way::tiles; ++r) {
    LATHE_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      const int row = (b.row_block * Way::row_tiles + Way::row_tile(r)) * kTileRows + g + 8 * i;
      if (row >= b.matrix.n) continue;
      const f32 bias = b.matrix.bias ? b.matrix.bias[row] : 0.0f;
      const i64 first = static_cast<i64>(token) * b.call.stride + b.matrix.first + row;
      // Few are looked at before a row is written, which may be the same memory to a compiler.
      constexpr bool kFew = Way::fragments <= 4;
      f32 added[kFew ? Way::fragments : 1][2] = {};
      if constexpr (kFew) {
        LATHE_UNROLL(4)
        for (int j = 0; j < Way::fragments; ++j) {
          LATHE_UNROLL(2)
          for (int c = 0; c < 2; ++c) {
            if (b.call.residual && token + 8 * j + c < b.call.tokens)
              added[j][c] = b.call.residual[first + (8 * j + c) * b.call.stride];
          }
        }
      }
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(2)
        for (int c = 0; c < 2; ++c) {
          const int at = token + 8 * j + c;
          if (at >= b.call.tokens) continue;
          const i64 place = static_cast<i64>(at) * b.call.stride + b.matrix.first + row;
          f32 value = fma(sum[r][j][2 * i + c], 2.0f, bias);
          if (b.call.residual) value = value + (kFew ? added[j % 4][c] : b.call.residual[place]);
          y[place] = value;
        }
      }
    }
  }
}

// activation(gate) * up as an operand of each of the warp's tokens, with zeros past the last row.
// Row tile `tile` of the gates; `up` has the sum that belongs to sum j, i.
template <class Way, class Up>
LATHE_DEVICE void store_gated_tile(const MatmulBlock& b, int tile,
                                   const f32 (&gates)[Way::fragments][4], Up up) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int token = b.token + warp_index() % Way::split * Way::tokens + 2 * t;
  u16* y = static_cast<u16*>(b.call.y);
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const int row = tile * kTileRows + g + 8 * i;
    if (row >= b.call.out_width) continue;
    LATHE_UNROLL(16)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const int at = token + 8 * j + c;
        if (at >= b.call.tokens) continue;
        const f32 gate = gates[j][2 * i + c] * 2.0f;
        // `up` is twice its sum, over 16.
        const f32 value =
            (b.call.activation ? gelu_tanh(gate) : silu(gate)) * (up(j, 2 * i + c) * 0.125f);
        y[operand_place(at, row, b.call.out_width, Way::few)] =
            f32_to_f16(row < b.matrix.n ? value : 0.0f);
      }
    }
  }
}

// Gates and ups of a block: the first four warps have the gates, each the ups' sums of the fourth
// warp after it, which come by shared memory.
template <class Way, class Meet>
LATHE_DEVICE void store_gated(const MatmulBlock& b, const MatmulSums<Way>& sum, f32* room,
                              Meet meet) {
  constexpr int kSums = Way::tiles * Way::fragments * 4 * kWarp;  // of a warp
  f32* ups = room + warp_index() % 4 * kSums + lane_index();
  meet();  // nobody reads what was there any more
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
  meet();
  if (warp_index() >= 4) return;
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r)
    store_gated_tile<Way>(
        b, b.row_block * (Way::row_tiles / 2) + Way::row_tile(r), sum[r],
        [&](int j, int i) { return ups[((r * Way::fragments + j) * 4 + i) * kWarp]; });
}

// `room`: shared memory for the sums of four warps; meet(): the barrier of those that multiply.
template <class Way, class Meet>
LATHE_DEVICE void store_sums(const MatmulBlock& b, const MatmulSums<Way>& sum, f32* room,
                             Meet meet) {
  if (b.call.gated)
    store_gated<Way>(b, sum, room, meet);
  else if (matmul_works<Way>(b))
    store_rows<Way>(b, sum);
}

}  // namespace lathe::dev
