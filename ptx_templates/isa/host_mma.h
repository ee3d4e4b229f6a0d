// Owns the host twins of isa/device_mma.h.
#pragma once

#include <cmath>

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

// c: row 0 times column 0, times column 1, then the same of row 1. A sum goes in the order of k,
// and one of floats is rounded once; how often the device rounds, and which way, is not documented:
// where sums are not exact the two differ in the last bits. The four go on together, as an addition
// takes long.
template <class Sum, class Value, int kDepth>
LATHE_DEVICE void host_multiply(Value (&c)[4], const Sum (&rows)[2][kDepth],
                                const Sum (&columns)[2][kDepth]) {
  Sum sum0 = static_cast<Sum>(c[0]), sum1 = static_cast<Sum>(c[1]);
  Sum sum2 = static_cast<Sum>(c[2]), sum3 = static_cast<Sum>(c[3]);
  for (int k = 0; k < kDepth; ++k) {
    sum0 += rows[0][k] * columns[0][k];
    sum1 += rows[0][k] * columns[1][k];
    sum2 += rows[1][k] * columns[0][k];
    sum3 += rows[1][k] * columns[1][k];
  }
  c[0] = static_cast<Value>(sum0);
  c[1] = static_cast<Value>(sum1);
  c[2] = static_cast<Value>(sum2);
  c[3] = static_cast<Value>(sum3);
}

// The words of a lane are A's, then B's from word `b` on.
template <bool kSigned, int kDepth>
LATHE_DEVICE void host_mma(i32 (&c)[4], const u32* words, int count, int b) {
  const auto lanes = emulation::gather(words, count);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  i32 rows[2][kDepth], columns[2][kDepth];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      const int part = k % 16 / 4, half = k / 16, shift = 8 * (k % 4);
      const u32 of_a = lanes[4 * g + part][2 * half + i] >> shift & 255;
      rows[i][k] = kSigned ? static_cast<i8>(of_a) : static_cast<i32>(of_a);
      columns[i][k] = static_cast<i8>(lanes[4 * (2 * t + i) + part][b + half] >> shift & 255);
    }
  }
  host_multiply(c, rows, columns);
}

LATHE_DEVICE void mma_u8_k32(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 words[] = {a0, a1, a2, a3, b0, b1};
  host_mma<false, 32>(c, words, 6, 4);
}
LATHE_DEVICE void mma_s8_k32(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 words[] = {a0, a1, a2, a3, b0, b1};
  host_mma<true, 32>(c, words, 6, 4);
}
LATHE_DEVICE void mma_u8_k16(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
  const u32 words[] = {a0, a1, b0};
  host_mma<false, 16>(c, words, 3, 2);
}

// `value` makes a float of 16 bits.
template <class Value>
LATHE_DEVICE void host_mma_half(f32 (&c)[4], const u32 (&words)[6], Value value) {
  const auto lanes = emulation::gather(words, 6);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  double rows[2][16], columns[2][16];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; k += 2) {
      const int part = k % 8 / 2, half = k / 8;
      const u32 a = lanes[4 * g + part][2 * half + i], b = lanes[4 * (2 * t + i) + part][4 + half];
      rows[i][k] = static_cast<double>(value(a & 0xffffu));
      rows[i][k + 1] = static_cast<double>(value(a >> 16));
      columns[i][k] = static_cast<double>(value(b & 0xffffu));
      columns[i][k + 1] = static_cast<double>(value(b >> 16));
    }
  }
  host_multiply(c, rows, columns);
}
LATHE_DEVICE void mma_f16_k16(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  host_mma_half(c, {a0, a1, a2, a3, b0, b1}, [](u32 bits) { return f16_to_f32(bits); });
}
LATHE_DEVICE void mma_bf16_k16(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  host_mma_half(c, {a0, a1, a2, a3, b0, b1}, [](u32 bits) { return as_f32(bits << 16); });
}

LATHE_DEVICE void mma_e4m3_k32(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 words[] = {a0, a1, a2, a3, b0, b1};
  const auto lanes = emulation::gather(words, 6);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  double rows[2][32], columns[2][32];
  const auto number = [](u32 word, int k) {
    return static_cast<double>(lathe::e4m3_to_f32(static_cast<u8>(word >> 8 * (k % 4))));
  };
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 32; ++k) {
      const int part = k % 16 / 4, half = k / 16;
      rows[i][k] = number(lanes[4 * g + part][2 * half + i], k);
      columns[i][k] = number(lanes[4 * (2 * t + i) + part][4 + half], k);
    }
  }
  host_multiply(c, rows, columns);
}

// The device rounds each of the sums, too; in which order it adds is not documented.
LATHE_DEVICE void mma_f64_k4(f64 (&c)[2], f64 a, f64 b) {
  const u64 of_a = as_u64(a), of_b = as_u64(b);
  const u32 words[] = {static_cast<u32>(of_a), static_cast<u32>(of_a >> 32), static_cast<u32>(of_b),
                       static_cast<u32>(of_b >> 32)};
  const auto lanes = emulation::gather(words, 4);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  const auto number = [&](int of, int word) {
    return as_f64(static_cast<u64>(lanes[of][word + 1]) << 32 | lanes[of][word]);
  };
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 4; ++k)
      c[i] = std::fma(number(4 * g + k, 0), number(4 * (2 * t + i) + k, 2), c[i]);
}

LATHE_DEVICE u32 e4m3_pair(f32 low, f32 high) {
  const auto one = [](f32 v) { return std::isnan(v) ? 0x7fu : u32{lathe::f32_to_e4m3(v)}; };
  return one(low) | one(high) << 8;
}

LATHE_DEVICE f32 low_half(u32 pair) {
  return f16_to_f32(pair);
}
LATHE_DEVICE f32 high_half(u32 pair) {
  return f16_to_f32(pair >> 16);
}
LATHE_DEVICE u32 half2(f32 low, f32 high) {
  return lathe::f32_to_f16(low) | static_cast<u32>(lathe::f32_to_f16(high)) << 16;
}

LATHE_DEVICE u32 lower_half2(u32 a) {
  return (a & 0xffffu) * 0x10001u;
}
LATHE_DEVICE u32 upper_half2(u32 a) {
  return (a >> 16) * 0x10001u;
}

LATHE_DEVICE void load_columns(u32 (&b)[4], const void* column) {
  const u32 mine = static_cast<u32>(static_cast<const u8*>(column) - shared_memory());
  const auto lanes = emulation::gather(&mine, 1);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i)
    b[i] = reinterpret_cast<const u32*>(shared_memory() + lanes[8 * i + g][0])[t];
}

LATHE_DEVICE void load_transposed(u32 (&b)[4], const void* row) {
  const u32 mine = static_cast<u32>(static_cast<const u8*>(row) - shared_memory());
  const auto lanes = emulation::gather(&mine, 1);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    u32 pair[2];
    for (int j = 0; j < 2; ++j)
      pair[j] = reinterpret_cast<const u16*>(shared_memory() + lanes[8 * i + 2 * t + j][0])[g];
    b[i] = pair[0] | pair[1] << 16;
  }
}

LATHE_DEVICE void group_multiply(f32 (&c)[16][4], u32 a0, u32 a1, u32 a2, u32 a3,
                                 const void* columns, int rows) {
  const u32 words[] = {a0, a1, a2, a3};
  const auto lanes = emulation::gather(words, 4);
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  double a[2][16], b[2][16];
  for (int k = 0; k < 16; k += 2) {
    for (int i = 0; i < 2; ++i) {
      const u32 word = lanes[4 * g + k % 8 / 2][2 * (k / 8) + i];
      a[i][k] = static_cast<double>(low_half(word));
      a[i][k + 1] = static_cast<double>(high_half(word));
    }
  }
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * j + 2 * t + i;
      const u8* at = static_cast<const u8*>(columns) + column * 128;
      for (int k = 0; k < 16; ++k)
        b[i][k] = static_cast<double>(f16_to_f32(
            reinterpret_cast<const u16*>(at + ((rows + k) / 8 ^ column % 8) * 16)[k % 8]));
    }
    host_multiply(c[j], a, b);
  }
}
LATHE_DEVICE void group_begin() {}
LATHE_DEVICE void group_end() {}
// All lanes come to it.
template <int kLeft>
LATHE_DEVICE void group_wait() {
  warp_barrier();
}
LATHE_DEVICE void group_sum(f32&) {}
LATHE_DEVICE void group_operands_ready() {}

// Exact but for one rounding: what a double loses is made odd, so that it rounds as the rest would.
LATHE_DEVICE u16 rounded_half(double exact) {
  f32 v = static_cast<f32>(exact);
  if (static_cast<double>(v) != exact && !std::isnan(exact) && !std::isinf(v)) {
    const bool beyond = std::fabs(static_cast<double>(v)) > std::fabs(exact);
    if (beyond) v = std::nextafter(v, 0.0f);
    v = as_f32(as_u32(v) | 1u);
  }
  return lathe::f32_to_f16(v);
}
LATHE_DEVICE u32 half2_fma(u32 a, u32 b, u32 c) {
  const auto one = [](f32 x, f32 y, f32 z) {
    return rounded_half(static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(z));
  };
  return one(low_half(a), low_half(b), low_half(c)) |
         static_cast<u32>(one(high_half(a), high_half(b), high_half(c))) << 16;
}
LATHE_DEVICE u32 half2_add(u32 a, u32 b) {
  return half2_fma(a, 0x3c003c00u, b);
}
LATHE_DEVICE u32 half2_multiply(u32 a, u32 b) {
  return half2_fma(a, b, 0x80008000u);
}

}  // namespace lathe::dev
