// Owns the elementary functions of device code, built from correctly rounded operations only, so
// that every consumer of the ops computes the same bits.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

// e^x to about 1 ulp, infinity where it overflows. Below -87 it returns e^-87 (1.6e-38): softmax
// weights need no zero.
LATHE_DEVICE f32 exponential(f32 argument) {
  f32 x = argument > -87.0f ? argument : -87.0f;  // NaN too, until the end
  x = x < 89.0f ? x : 89.0f;                      // e^89 overflows in the last product
  // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts so that r keeps its low bits.
  const f32 n = round_even(x * 1.44269504f);
  f32 r = fma(n, -0.693145752f, x);
  r = fma(n, -1.42860682e-6f, r);
  f32 p = 1.98756912e-4f;
  p = fma(p, r, 1.39819994e-3f);
  p = fma(p, r, 8.33345205e-3f);
  p = fma(p, r, 4.16657962e-2f);
  p = fma(p, r, 1.66666657e-1f);
  p = fma(p, r, 0.5f);
  p = fma(p, r * r, r) + 1.0f;
  // 2^n in two factors: 2^128 does not exist as a float.
  const int half = static_cast<int>(n) / 2;
  const f32 first = as_f32(static_cast<u32>(half + 127) << 23);
  const f32 second = as_f32(static_cast<u32>(static_cast<int>(n) - half + 127) << 23);
  return argument != argument ? argument : p * first * second;
}

// 1 / sqrt(x) to about 1 ulp for normal x > 0: a guess from the exponent and three Newton steps,
// which have no branches and a shorter way than a root and a division.
LATHE_DEVICE f32 reciprocal_root(f32 x) {
  f32 y = as_f32(0x5f3759dfu - (as_u32(x) >> 1));
  const f32 half = -0.5f * x;
  LATHE_UNROLL(3)
  for (int i = 0; i < 3; ++i) y = y * fma(half * y, y, 1.5f);
  return y;
}

// 1 / x to about 1 ulp for normal x between 2^-125.9 and 2^125.9, without branches, in the same
// way.
LATHE_DEVICE f32 reciprocal(f32 x) {
  f32 y = as_f32(0x7ef311c7u - as_u32(x));
  LATHE_UNROLL(3)
  for (int i = 0; i < 3; ++i) y = fma(y, fma(-x, y, 1.0f), y);
  return y;
}

LATHE_DEVICE f32 sigmoid(f32 x) {
  return divide(1.0f, 1.0f + exponential(-x));
}
// The same for whoever is waited for, without a division. Below -87 it stays what it is there,
// where sigmoid() goes on to 0: of a greater sum reciprocal() would make no normal number. A NaN is
// taken for such an x: multiply by x.
LATHE_DEVICE f32 short_sigmoid(f32 x) {
  return reciprocal(1.0f + exponential(x > -87.0f ? -x : 87.0f));
}

LATHE_DEVICE f32 silu(f32 x) {
  return x * sigmoid(x);
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as x times a sigmoid.
LATHE_DEVICE f32 gelu_argument(f32 x) {
  return 1.59576912f * (x * fma(0.044715f * x, x, 1.0f));
}
LATHE_DEVICE f32 gelu_tanh(f32 x) {
  return x * sigmoid(gelu_argument(x));
}

// x times the normal distribution's share below x. The share beyond |x| is e^(-x^2 / 2) u P(u) with
// u = 1 / (1 + 0.3 |x|) and P a polynomial fitted to 1.5e-7 of it for |x| <= 14.
LATHE_DEVICE f32 gelu_erf(f32 x) {
  const f32 magnitude = x < 0 ? -x : x;
  const f32 u = divide(1.0f, fma(0.3f, magnitude, 1.0f));
  f32 p = 0.0356748477f;
  p = fma(p, u, -0.157203361f);
  p = fma(p, u, 0.206353962f);
  p = fma(p, u, -0.0536840372f);
  p = fma(p, u, 0.128561825f);
  p = fma(p, u, 0.0999134406f);
  p = fma(p, u, 0.120753966f);
  p = fma(p, u, 0.119629301f);
  const f32 beyond = exponential(-0.5f * x * x) * (u * p);
  if (x < 0) return x * beyond;
  return beyond > 0 ? fma(-x, beyond, x) : x;  // infinity times 0 is no number
}

LATHE_DEVICE f32 relu(f32 x) {
  return x < 0 ? 0.0f : x;
}

// Sine and cosine of `turns` revolutions, |turns| <= 0.5.
LATHE_DEVICE void sine_cosine(f32 turns, f32& sine, f32& cosine) {
  const f32 quarter = round_even(4.0f * turns);
  const f32 a = fma(quarter, -0.25f, turns) * 6.28318531f;  // within pi/4 of 0
  const f32 a2 = a * a;
  f32 s = fma(a2, 2.75573192e-6f, -1.98412698e-4f);
  s = fma(a2, s, 8.33333333e-3f);
  s = fma(a2, s, -1.66666667e-1f);
  s = fma(a2 * a, s, a);
  f32 c = fma(a2, -2.75573192e-7f, 2.48015873e-5f);
  c = fma(a2, c, -1.38888889e-3f);
  c = fma(a2, c, 4.16666667e-2f);
  c = fma(a2, c, -0.5f);
  c = fma(a2, c, 1.0f);
  const int q = static_cast<int>(quarter) & 3;
  const f32 even_s = (q & 1) ? c : s, even_c = (q & 1) ? s : c;
  sine = (q & 2) ? -even_s : even_s;
  cosine = (q == 1 || q == 2) ? -even_c : even_c;
}

// The fraction of position * frequency in [-0.5, 0.5], frequency in revolutions as high + low.
// The product's rounding error is recovered, so the result holds to f32 at any position.
LATHE_DEVICE f32 turns_at(int position, f32 high, f32 low) {
  const f32 p = static_cast<f32>(position);
  const f32 product = p * high;
  const f32 error = fma(p, high, -product);
  const f32 whole = round_even(product);
  const f32 turns = (product - whole) + fma(p, low, error);
  return turns - round_even(turns);
}

}  // namespace lathe::dev
