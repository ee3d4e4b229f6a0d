// Owns what the ways of making a tile of gemm have in common: what a kernel is given, and what
// becomes of sums.
#pragma once

#include "ops/gemm_shapes.h"
#include "ops/math.h"

namespace lathe::dev {

// Numbers are constants.
struct GemmCall {
  const u8 *x, *w;  // operands of m and n rows
  const f32* bias;
  f32* y;  // m rows of n
  int m, n, k;
  int blocks;
  int activation;  // 0: none; else 1 + that of the key
};

// How operands are made: planes, and whether their numbers are bf16.
template <int kPlanes, bool kBrain>
struct GemmForm {
  enum : int { planes = kPlanes };
  enum : bool { brain = kBrain };
};
using GemmFaithful = GemmForm<2, false>;
using GemmHalf = GemmForm<1, false>;
using GemmBrain = GemmForm<1, true>;

LATHE_DEVICE f32 gemm_activated(f32 v, int activation) {
  if (activation == 1) return silu(v);
  if (activation == 2) return gelu_tanh(v);
  if (activation == 3) return gelu_erf(v);
  if (activation == 4) return relu(v);
  return v;
}

// v times 2^exponent, in two factors: the exponent is one of two rows.
LATHE_DEVICE f32 scaled_by(f32 v, int exponent) {
  const int half = exponent >> 1;
  return v * as_f32(static_cast<u32>(half + 127) << 23) *
         as_f32(static_cast<u32>(exponent - half + 127) << 23);
}

// Sums of fragments of eight columns each, from `column` on; the lane has rows `row` and row + 8,
// and two neighbouring columns.
template <class Form, int kFragments>
LATHE_DEVICE void store_gemm(const GemmCall& c, const f32 (&sum)[kFragments][4], int row,
                             int column) {
  const i32* x_exponents =
      reinterpret_cast<const i32*>(c.x + gemm_exponents_at(c.m, c.k, Form::planes));
  const i32* w_exponents =
      reinterpret_cast<const i32*>(c.w + gemm_exponents_at(c.n, c.k, Form::planes));
  const int exponents[2] = {x_exponents[row], x_exponents[row + 8]};
  LATHE_UNROLL(32)
  for (int j = 0; j < kFragments; ++j) {
    const int at = column + 8 * j;
    if (at >= c.n) break;
    const bool pair = at + 1 < c.n;
    LATHE_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      if (row + 8 * i >= c.m) continue;
      f32 v[2] = {};
      LATHE_UNROLL(2)
      for (int d = 0; d < 2; ++d) {
        const int own = pair ? at + d : at;
        v[d] = scaled_by(sum[j][2 * i + d], exponents[i] + w_exponents[own]);
        if (c.bias) v[d] = v[d] + c.bias[own];
        v[d] = gemm_activated(v[d], c.activation);
      }
      f32* to = c.y + static_cast<i64>(row + 8 * i) * c.n + at;
      if (c.n % 2 == 0) {
        *reinterpret_cast<f32x2*>(to) = {v[0], v[1]};
      } else {
        to[0] = v[0];
        if (pair) to[1] = v[1];
      }
    }
  }
}

}  // namespace lathe::dev
