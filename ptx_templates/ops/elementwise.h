// Owns y = scale * function(x, b) for each of n values: copies, sums, products, activations. b has
// k values and is repeated. y may be x, and b where that has n values.
#pragma once

#include "ops/math.h"

namespace lathe::dev {

// A thread has four consecutive values.
template <class Function>
LATHE_DEVICE void elementwise(const f32* x, const f32* b, f32* y, int n, int k, int warps,
                              f32 scale, Function function) {
  const int i = (block_x() * warps * kWarp + thread_index()) * 4;
  if (i >= n) return;
  if (k % 4 == 0 && i + 4 <= n) {
    f32x4 v = *reinterpret_cast<const f32x4*>(x + i);
    f32x4 w = {0, 0, 0, 0};
    if (b) w = *reinterpret_cast<const f32x4*>(b + i % k);
    v.x = scale * function(v.x, w.x);
    v.y = scale * function(v.y, w.y);
    v.z = scale * function(v.z, w.z);
    v.w = scale * function(v.w, w.w);
    *reinterpret_cast<f32x4*>(y + i) = v;
    return;
  }
  LATHE_UNROLL(4)
  for (int j = i; j < i + 4; ++j)
    if (j < n) y[j] = scale * function(x[j], b ? b[j % k] : 0.0f);
}

#define LATHE_ELEMENT_OP(name, expression)                                                        \
  LATHE_OP name(const f32* x, const f32* b, f32* y, int n, int k, int warps, f32 scale) {         \
    elementwise(x, b, y, n, k, warps, scale, [](f32 v, f32 w) { return (void)w, (expression); }); \
  }

LATHE_ELEMENT_OP(elementwise_copy, v)
LATHE_ELEMENT_OP(elementwise_add, v + w)
LATHE_ELEMENT_OP(elementwise_multiply, v* w)
LATHE_ELEMENT_OP(elementwise_silu, silu(v + w))
LATHE_ELEMENT_OP(elementwise_gelu_tanh, gelu_tanh(v + w))
LATHE_ELEMENT_OP(elementwise_gelu_erf, gelu_erf(v + w))
LATHE_ELEMENT_OP(elementwise_relu, relu(v + w))

}  // namespace lathe::dev
