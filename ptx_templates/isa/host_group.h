// Owns the host twins of isa/device_group.h.
#pragma once

#include <algorithm>

#include "isa/host_mma.h"

namespace lathe::dev {

// The 32 bytes of a row at `at`, within swizzled rows of 128 bytes, as numbers.
template <class Number, int kNumbers, class Value>
LATHE_DEVICE void host_group_row(const void* at, int row, double (&out)[kNumbers], Value value) {
  // Which eighth of a row `at` is; rows begin at a multiple of 1024.
  const auto offset = static_cast<const u8*>(at) - shared_memory();
  const u8* rows = shared_memory() + offset / 1024 * 1024;
  const int piece = static_cast<int>(offset % 1024) / 16;
  constexpr int kHalf = kNumbers / 2;
  for (int k = 0; k < kNumbers; ++k) {
    const u8* from = rows + row * 128 + ((piece + k / kHalf) ^ row % 8) * 16;
    out[k] = static_cast<double>(value(reinterpret_cast<const Number*>(from)[k % kHalf]));
  }
}
template <class Number, int kFragments, class Value>
LATHE_DEVICE void host_group(f32 (&c)[kFragments][4], const void* a, const void* b, bool adds,
                             Value value) {
  constexpr int kNumbers = 32 / static_cast<int>(sizeof(Number));
  const int lane = thread_index() & 31, g = lane / 4, t = lane % 4;
  const int first = thread_index() / 32 % 4 * 16;
  double rows[2][kNumbers], columns[2][kNumbers];
  for (int i = 0; i < 2; ++i) host_group_row<Number>(a, first + g + 8 * i, rows[i], value);
  for (int j = 0; j < kFragments; ++j) {
    for (int d = 0; d < 2; ++d) host_group_row<Number>(b, 8 * j + 2 * t + d, columns[d], value);
    if (!adds) std::fill_n(c[j], 4, 0.0f);
    host_multiply(c[j], rows, columns);
  }
}
LATHE_DEVICE void group_multiply_256_f16(f32 (&c)[32][4], const void* a, const void* b, bool adds) {
  host_group<u16>(c, a, b, adds, [](u16 bits) { return f16_to_f32(bits); });
}
LATHE_DEVICE void group_multiply_256_bf16(f32 (&c)[32][4], const void* a, const void* b,
                                          bool adds) {
  host_group<u16>(c, a, b, adds, [](u16 bits) { return as_f32(static_cast<u32>(bits) << 16); });
}
LATHE_DEVICE void group_multiply_128_f16(f32 (&c)[16][4], const void* a, const void* b, bool adds) {
  host_group<u16>(c, a, b, adds, [](u16 bits) { return f16_to_f32(bits); });
}
LATHE_DEVICE void group_multiply_128_e4m3(f32 (&c)[16][4], const void* a, const void* b,
                                          bool adds) {
  host_group<u8>(c, a, b, adds, [](u8 bits) { return lathe::e4m3_to_f32(bits); });
}

// The lower half counts the phases that have ended, as barriers of copies do; the upper half has
// how many arrivals end one, and how many there were.
LATHE_DEVICE void hand_over_init(u64* barrier, u32 arrivals) {
  *barrier = static_cast<u64>(arrivals) << 48;
}
LATHE_DEVICE void hand_over_arrive(u64* barrier) {
  *barrier += 1ull << 32;
  if ((*barrier >> 32 & 0xffffu) == *barrier >> 48)
    *barrier = (*barrier >> 48) << 48 | ((*barrier + 1) & 0xffffffffu);
}
// The fiber does not pause between this and the copies. A barrier that copy_barrier_init() made has
// one arrival.
LATHE_DEVICE void announce_copies(u64* barrier, u32) {
  if (*barrier >> 48 != 0) return hand_over_arrive(barrier);
  ++*barrier;
}
LATHE_DEVICE void bulk_copy_part(void* shared, const void* global, u32 bytes, u64*) {
  std::memcpy(shared, global, bytes);
}

}  // namespace lathe::dev
