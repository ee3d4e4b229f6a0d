// Owns y[n] = W[n][k] . x[k] (* scale) (+ bias) (+ residual) where all are f64: a warp computes
// `rows` rows, its lanes taking one or two values along k in turn.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

// Adds the products to a lane's sums: of pairs where each row starts on 16 bytes.
LATHE_DEVICE void gemv_f64_products(const f64* w, const f64* x, f64* acc, int k, int n, int row,
                                    int rows) {
  if (k % 2 == 0) {
    LATHE_UNROLL(2)
    for (int step = 0; step < ceil_div(k, 2 * kWarp); ++step) {
      const int i = (step * kWarp + lane_index()) * 2;
      if (k % (2 * kWarp) && i >= k) break;
      const f64x2 v = *reinterpret_cast<const f64x2*>(x + i);
      LATHE_UNROLL(8)
      for (int r = 0; r < kGemvMaxRows; ++r) {
        if (r >= rows) break;
        const f64x2 pair = stream_f64x2(w + static_cast<i64>(min_int(row + r, n - 1)) * k + i);
        acc[r] = fma(pair.y, v.y, fma(pair.x, v.x, acc[r]));
      }
    }
  } else {
    LATHE_UNROLL(4)
    for (int step = 0; step < ceil_div(k, kWarp); ++step) {
      const int i = step * kWarp + lane_index();
      if (k % kWarp && i >= k) break;
      const f64 v = x[i];
      LATHE_UNROLL(8)
      for (int r = 0; r < kGemvMaxRows; ++r) {
        if (r >= rows) break;
        acc[r] = fma(w[static_cast<i64>(min_int(row + r, n - 1)) * k + i], v, acc[r]);
      }
    }
  }
}

LATHE_OP gemv_f64(const u8* w, const u8* x, const u8* scales, const u8* bias, const u8* residual,
                  u8* y, int k, int n, int warps, int rows) {
  const int row = (block_x() * warps + warp_index()) * rows;
  f64 acc[kGemvMaxRows] = {};
  gemv_f64_products(reinterpret_cast<const f64*>(w), reinterpret_cast<const f64*>(x), acc, k, n,
                    row, rows);
  LATHE_UNROLL(8)
  for (int i = 0; i < kGemvMaxRows; ++i) {
    if (i >= rows) break;
    const f64 total = warp_sum(acc[i]);
    if (lane_index() == 0 && row + i < n) {
      f64 out = total;
      if (scales) out = out * reinterpret_cast<const f64*>(scales)[row + i];
      if (bias) out = out + reinterpret_cast<const f64*>(bias)[row + i];
      if (residual) out = out + reinterpret_cast<const f64*>(residual)[row + i];
      reinterpret_cast<f64*>(y)[row + i] = out;
    }
  }
}

}  // namespace lathe::dev
