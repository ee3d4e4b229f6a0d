// Owns y = (x - mean) / sqrt(variance + epsilon) * weight (+ bias), per row of k values.
#pragma once

#include "ops/rms_norm.h"

namespace lathe::dev {

LATHE_OP layer_norm(const f32* x, const f32* weight, const f32* bias, f32* y, int k, int warps,
                    f32 epsilon) {
  f32* shared = reinterpret_cast<f32*>(shared_memory());
  const int threads = warps * kWarp;
  const i64 base = static_cast<i64>(block_x()) * k;
  f32 sum = 0;
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    sum = sum + x[base + i];
  }
  const f32 values = static_cast<f32>(k);
  const f32 mean = divide(block_sum(sum, shared, warps), values);
  // The deviations' own mean is what rounding has left out of `mean`.
  f32 deviations = 0, squares = 0;
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    const f32 d = x[base + i] - mean;
    deviations = deviations + d;
    squares = fma(d, d, squares);
  }
  const f32 rest = divide(block_sum(deviations, shared + warps, warps), values);
  squares = block_sum(squares, shared + 2 * warps, warps);
  const f32 variance = fma(-rest, rest, divide(squares, values));
  const f32 positive = variance > 0 ? variance : 0;
  const f32 factor = divide(1.0f, square_root(positive + epsilon));
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(k, threads); ++step) {
    const int i = step * threads + thread_index();
    if (k % threads && i >= k) break;
    f32 out = (x[base + i] - mean - rest) * factor * weight[i];
    if (bias) out = out + bias[i];
    y[base + i] = out;
  }
}

}  // namespace lathe::dev
