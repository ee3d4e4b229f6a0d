// Owns the host twins of isa/device_mma.h.
#pragma once

#include "isa/host.h"

namespace lathe::emulation {
// Gives `count` words, at most 8, to the other lanes; row i of the result is lane i's. Valid until
// the lane's next exchange.
const unsigned (*gather(const unsigned* mine, int count))[8];
}  // namespace lathe::emulation

namespace lathe::dev {

LATHE_DEVICE u32 ballot(bool flag) {
  const u32 mine = flag;
  const auto lanes = emulation::gather(&mine, 1);
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= lanes[i][0] << i;
  return r;
}

LATHE_DEVICE i32 dot4(u32 a, u32 b, i32 c) {
  for (int i = 0; i < 4; ++i) c += static_cast<i8>(a >> 8 * i) * static_cast<i8>(b >> 8 * i);
  return c;
}

// The words of a lane are A's, then B's from word `b` on; `depth` is k.
template <bool kSigned>
LATHE_DEVICE void host_mma(i32 (&c)[4], const u32* words, int count, int b, int depth) {
  const auto lanes = emulation::gather(words, count);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    i32 sum = c[i];
    for (int k = 0; k < depth; ++k) {
      const int part = k % 16 / 4, half = k / 16, shift = 8 * (k % 4);
      const u32 wa = lanes[4 * (row % 8) + part][2 * half + row / 8] >> shift & 255;
      const u32 wb = lanes[4 * column + part][b + half] >> shift & 255;
      const i32 a = kSigned ? static_cast<i8>(wa) : static_cast<i32>(wa);
      sum += a * static_cast<i8>(wb);
    }
    c[i] = sum;
  }
}

LATHE_DEVICE void mma_u8_k32(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 words[] = {a0, a1, a2, a3, b0, b1};
  host_mma<false>(c, words, 6, 4, 32);
}
LATHE_DEVICE void mma_s8_k32(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 words[] = {a0, a1, a2, a3, b0, b1};
  host_mma<true>(c, words, 6, 4, 32);
}
LATHE_DEVICE void mma_u8_k16(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
  const u32 words[] = {a0, a1, b0};
  host_mma<false>(c, words, 3, 2, 16);
}

// `value` makes a float of 16 bits. The sum is rounded once; how often the device rounds, and which
// way, is not documented: where sums are not exact the two differ in the last bits.
template <class Value>
LATHE_DEVICE void host_mma_half(f32 (&c)[4], const u32 (&words)[6], Value value) {
  const auto lanes = emulation::gather(words, 6);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    double sum = static_cast<double>(c[i]);
    for (int k = 0; k < 16; ++k) {
      const int part = k % 8 / 2, half = k / 8, shift = 16 * (k % 2);
      const u32 a = lanes[4 * (row % 8) + part][2 * half + row / 8] >> shift & 0xffffu;
      const u32 b = lanes[4 * column + part][4 + half] >> shift & 0xffffu;
      sum += static_cast<double>(value(a)) * static_cast<double>(value(b));
    }
    c[i] = static_cast<f32>(sum);
  }
}
LATHE_DEVICE void mma_f16_k16(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  host_mma_half(c, {a0, a1, a2, a3, b0, b1}, [](u32 bits) { return f16_to_f32(bits); });
}
LATHE_DEVICE void mma_bf16_k16(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  host_mma_half(c, {a0, a1, a2, a3, b0, b1}, [](u32 bits) { return as_f32(bits << 16); });
}

}  // namespace lathe::dev
