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
  f32* y;       // m rows of n
  int m, n, k;  // k: words of a row in a plane
  int blocks;
  int activation;  // 0: none; else 1 + that of the key
};

// How operands are made: planes, and whether their numbers are bf16 or e4m3. The matrix units cut
// sums off where a CPU would round: of two planes, and of e4m3, whose sums have some 14 bits there,
// they add up a stage alone.
template <int kPlanes, bool kBrain, bool kEight = false>
struct GemmForm {
  enum : int { planes = kPlanes };
  enum : bool { brain = kBrain, eight = kEight, by_stage = kPlanes == 2 || kEight };
};
using GemmFaithful = GemmForm<2, false>;
using GemmHalf = GemmForm<1, false>;
using GemmBrain = GemmForm<1, true>;
using GemmEight = GemmForm<1, false, true>;

LATHE_DEVICE f32 gemm_activated(f32 v, int activation) {
  if (activation == 1) return silu(v);
  if (activation == 2) return gelu_tanh(v);
  if (activation == 3) return gelu_erf(v);
  if (activation == 4) return relu(v);
  return v;
}

// v times 2 to the exponents of two rows, in two factors.
LATHE_DEVICE f32 scaled_by(f32 v, i32 a, i32 b) {
  const int exponent = a + b, half = exponent >> 1;
  return v * as_f32(static_cast<u32>(half + 127) << 23) *
         as_f32(static_cast<u32>(exponent - half + 127) << 23);
}

// v times two factors, the smaller one first, so that it does not leave the range between them.
LATHE_DEVICE f32 scaled_by(f32 v, f32 a, f32 b) {
  return a < b ? v * a * b : v * b * a;
}

// What the numbers of a row are multiplied by: a power of two, as its exponent, or a factor.
template <class Form>
struct GemmRowScale {
  using Type = i32;
};
template <>
struct GemmRowScale<GemmEight> {
  using Type = f32;
};

// Sums of fragments of eight columns each, from `column` on; the lane has rows `row` and row + 8,
// and two neighbouring columns.
template <class Form, int kFragments>
LATHE_DEVICE void store_gemm(const GemmCall& c, const f32 (&sum)[kFragments][4], int row,
                             int column) {
  using Scale = typename GemmRowScale<Form>::Type;
  const Scale* x_scales =
      reinterpret_cast<const Scale*>(c.x + gemm_exponents_at(c.m, c.k, Form::planes));
  const Scale* w_scales =
      reinterpret_cast<const Scale*>(c.w + gemm_exponents_at(c.n, c.k, Form::planes));
  const Scale scales[2] = {x_scales[row], x_scales[row + 8]};
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
        v[d] = scaled_by(sum[j][2 * i + d], scales[i], w_scales[own]);
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
