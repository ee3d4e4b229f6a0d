// Owns y = x / sqrt(mean(x^2) + epsilon) * weight (+ residual), per row of k values.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

// Sum over the block, in every thread. `shared` holds one value per warp.
LATHE_DEVICE f32 block_sum(f32 value, f32* shared, int warps) {
  value = warp_sum(value);
  if (warps == 1) return value;
  if (lane_index() == 0) shared[warp_index()] = value;
  block_barrier();
  f32 total = shared[0];
  LATHE_UNROLL(8)
  for (int i = 1; i < warps; ++i) total = total + shared[i];
  return total;
}

LATHE_OP rms_norm(const f32* x, const f32* weight, const f32* residual, f32* y, int k, int warps,
                  f32 epsilon) {
  const int threads = warps * kWarp;
  const i64 base = static_cast<i64>(block_x()) * k;
  f32 squares = 0;
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    const f32 v = x[base + i];
    squares = fma(v, v, squares);
  }
  squares = block_sum(squares, reinterpret_cast<f32*>(shared_memory()), warps);
  const f32 root = square_root(divide(squares, static_cast<f32>(k)) + epsilon);
  const f32 factor = divide(1.0f, root);
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    f32 out = x[base + i] * factor * weight[i];
    if (residual) out = out + residual[base + i];
    y[base + i] = out;
  }
}

}  // namespace lathe::dev
