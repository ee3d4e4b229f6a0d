// Owns y = e^(scale x) / sum of e^(scale x), per row of k values.
#pragma once

#include "ops/math.h"
#include "ops/rms_norm.h"

namespace lathe::dev {

// The weight of x beside the greatest value; 0 where that is 87 e-folds above, or x is -infinity.
LATHE_DEVICE f32 softmax_weight(f32 x, f32 greatest, f32 scale) {
  const f32 exponent = (x - greatest) * scale;
  return exponent < -87.0f ? 0.0f : exponential(exponent);
}

LATHE_OP softmax(const f32* x, f32* y, int k, int warps, f32 scale) {
  f32* shared = reinterpret_cast<f32*>(shared_memory());
  const int threads = warps * kWarp;
  const i64 base = static_cast<i64>(block_x()) * k;
  f32 greatest = x[base];
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    const f32 v = x[base + i];
    greatest = v > greatest ? v : greatest;
  }
  greatest = warp_max(greatest);
  if (warps > 1) {
    if (lane_index() == 0) shared[warp_index()] = greatest;
    block_barrier();
    LATHE_UNROLL(8)
    for (int i = 0; i < warps; ++i) greatest = shared[i] > greatest ? shared[i] : greatest;
  }
  f32 sum = 0;
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    sum = sum + softmax_weight(x[base + i], greatest, scale);
  }
  const f32 factor = divide(1.0f, block_sum(sum, shared + warps, warps));
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    y[base + i] = softmax_weight(x[base + i], greatest, scale) * factor;
  }
}

}  // namespace lathe::dev
