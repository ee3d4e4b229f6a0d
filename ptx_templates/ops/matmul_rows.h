// Owns what becomes of a block's sums in matmul: rows with bias and residual, or gated rows as
// operands.
#pragma once

#include "ops/math.h"
#include "ops/matmul_block.h"

namespace lathe::dev {

// The first of a lane's tokens of fragment 0; of fragment j they are 8 j further.
template <class Way>
LATHE_DEVICE int first_token(const MatmulBlock& b) {
  return b.token + warp_index() % Way::split * Way::tokens + lane_index() % 4 * 2;
}

// Rows of row tile `tile` and the tokens of some fragments. All residuals are asked for at once,
// whatever tokens there are, and before a row is written, which may be the same memory to a
// compiler.
template <int kFragments>
LATHE_DEVICE void store_row_tile(const MatmulBlock& b, int tile, int token, const f32 (*sum)[4]) {
  const int g = lane_index() / 4;
  f32* y = static_cast<f32*>(b.call.y);
  f32 added[2][kFragments][2] = {};
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const int row = min_int(tile * kTileRows + g + 8 * i, b.matrix.n - 1);
    LATHE_UNROLL(4)
    for (int j = 0; j < kFragments; ++j) {
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const i64 at = min_int(token + 8 * j + c, b.call.tokens - 1);
        if (b.call.residual)
          added[i][j][c] = b.call.residual[at * b.call.stride + b.matrix.first + row];
      }
    }
  }
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const int row = tile * kTileRows + g + 8 * i;
    if (row >= b.matrix.n) continue;
    const f32 bias = b.matrix.bias ? b.matrix.bias[row] : 0.0f;
    LATHE_UNROLL(4)
    for (int j = 0; j < kFragments; ++j) {
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const int at = token + 8 * j + c;
        f32 value = fma(sum[j][2 * i + c], b.matrix.factor, bias);
        if (b.call.residual) value = value + added[i][j][c];
        if (at < b.call.tokens)
          y[static_cast<i64>(at) * b.call.stride + b.matrix.first + row] = value;
      }
    }
  }
}
template <class Way>
LATHE_DEVICE void store_rows(const MatmulBlock& b, const MatmulSums<Way>& sum) {
  constexpr int kAtOnce = Way::fragments < 4 ? Way::fragments : 4;
  const int token = first_token<Way>(b);
  LATHE_UNROLL(4)
  for (int r = 0; r < Way::tiles; ++r) {
    const int tile = b.row_block * Way::row_tiles(b.call) + Way::row_tile(b.call, r);
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; j += kAtOnce)
      store_row_tile<kAtOnce>(b, tile, token + 8 * j, sum[r] + j);
  }
}

// Means of a row tile's operands, of some fragments' tokens. Each lane has the sums of its rows.
template <int kFragments>
LATHE_DEVICE void store_operand_means(const MatmulBlock& b, int tile, int token,
                                      const f32 (&sums)[kFragments][2]) {
  u16* y = static_cast<u16*>(b.call.y);
  LATHE_UNROLL(4)
  for (int j = 0; j < kFragments; ++j) {
    LATHE_UNROLL(2)
    for (int c = 0; c < 2; ++c) {
      f32 sum = sums[j][c];
      LATHE_UNROLL(3)
      for (int mask = 4; mask < kWarp; mask *= 2) sum = sum + shuffle_xor(sum, mask);
      const int at = token + 8 * j + c;
      if (lane_index() < 4 && at < b.call.tokens)
        y[operand_mean_place(at, tile * kTileRows, b.call.out_width, 8 * kFragments)] =
            f32_to_f16(sum * 0.0625f);
    }
  }
}

// activation(gate) * up as an operand of each of the warp's tokens, with zeros past the last row.
// Row tile `tile` of the gates; up(j, i) has the sum that belongs to theirs. All are computed
// before one is stored, so that they are side by side, not each behind a branch.
template <class Way, class Up>
LATHE_DEVICE void store_gated_tile(const MatmulBlock& b, int tile,
                                   const f32 (&gates)[Way::fragments][4], Up up) {
  const int g = lane_index() / 4, token = first_token<Way>(b);
  u16* y = static_cast<u16*>(b.call.y);
  f32 sums[Way::fragments][2] = {};  // of operands as they are rounded
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const int row = tile * kTileRows + g + 8 * i;
    u32 products[Way::fragments][2];
    LATHE_UNROLL(16)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const f32 gate = gates[j][2 * i + c] * b.matrix.factor;
        const f32 value = (b.call.activation ? gelu_tanh(gate) : silu(gate)) *
                          (up(j, 2 * i + c) * (b.matrix.factor * 0.0625f));
        products[j][c] = pinned(f32_to_f16(row < b.matrix.n ? value : 0.0f));
        if (Way::few != 0) sums[j][c] = sums[j][c] + f16_to_f32(products[j][c]);
      }
    }
    LATHE_UNROLL(16)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const int at = token + 8 * j + c;
        if (row < b.call.out_width && at < b.call.tokens)
          y[operand_place(at, row, b.call.out_width, Way::few)] = static_cast<u16>(products[j][c]);
      }
    }
  }
  if constexpr (int{Way::few} != 0) {
    if (tile * kTileRows < b.call.out_width)
      store_operand_means<Way::fragments>(b, tile, token, sums);
  }
}

// Gates and ups of a block: the first half of its warps have the gates, each the ups' sums of a
// warp of the other half, which come by shared memory.
template <class Way, class Meet>
LATHE_DEVICE void store_gated(const MatmulBlock& b, const MatmulSums<Way>& sum, f32* room,
                              Meet meet) {
  constexpr int kSums = Way::tiles * Way::fragments * 4 * kWarp;                        // of a warp
  const int half = Way::row_tiles(b.call) / 2, gates = half / Way::tiles * Way::split;  // warps
  f32* all = room + warp_index() % gates * kSums + lane_index();
  meet();  // nobody reads what was there any more
  if (warp_index() >= gates) {
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) {
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) all[((r * Way::fragments + j) * 4 + i) * kWarp] = sum[r][j][i];
      }
    }
  }
  meet();
  if (warp_index() >= gates) return;
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r)
    store_gated_tile<Way>(
        b, b.row_block * half + Way::row_tile(b.call, r), sum[r],
        [&](int j, int i) { return all[((r * Way::fragments + j) * 4 + i) * kWarp]; });
}

// `room`: shared memory for the sums of half the warps, if gates are not paired with their ups;
// meet(): the barrier of those that multiply.
template <class Way, class Meet>
LATHE_DEVICE void store_sums(const MatmulBlock& b, const MatmulSums<Way>& sum, f32* room,
                             Meet meet) {
  if (!b.call.gated) {
    if (matmul_works<Way>(b)) store_rows<Way>(b, sum);
  } else if constexpr (int{Way::gate_pairs} != 0) {
    if (matmul_works<Way>(b))
      store_gated_tile<Way>(b, b.row_block * few_row_warps(b.call.warps) + warp_index(), sum[0],
                            [&](int j, int i) { return sum[1][j][i]; });
  } else {
    store_gated<Way>(b, sum, room, meet);
  }
}

}  // namespace lathe::dev
