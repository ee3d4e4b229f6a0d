// Owns the host twins of isa/device.h: the same meaning, run by one fiber per device thread.
//
// The emulator sets `current` before it resumes a fiber; barriers and shuffles give control back
// to it until the other threads have arrived.
#pragma once

#include <array>
#include <bit>
#include <cmath>

#include "isa/types.h"
#include "lathe/codegen/format.h"

#define LATHE_DEVICE static inline
#define LATHE_OP inline void
#define LATHE_UNROLL(n)

namespace lathe::emulation {

// What the emulator knows of the running device thread.
struct DeviceThread {
  int thread = 0;
  int block_x = 0;
  int block_y = 0;
  unsigned char* shared = nullptr;
};
extern constinit thread_local DeviceThread* current;

// Waits for every thread of the block, or of the warp.
void block_barrier();
void warp_barrier();
// Gives `value` to the other 31 lanes and returns the value of `lane`.
unsigned exchange(unsigned value, int lane);

}  // namespace lathe::emulation

namespace lathe::dev {

LATHE_DEVICE int thread_index() {
  return emulation::current->thread;
}
LATHE_DEVICE int block_x() {
  return emulation::current->block_x;
}
LATHE_DEVICE int block_y() {
  return emulation::current->block_y;
}
LATHE_DEVICE void block_barrier() {
  emulation::block_barrier();
}
LATHE_DEVICE void warp_barrier() {
  emulation::warp_barrier();
}
LATHE_DEVICE u8* shared_memory() {
  return emulation::current->shared;
}

LATHE_DEVICE u32 as_u32(f32 v) {
  return std::bit_cast<u32>(v);
}
LATHE_DEVICE f32 as_f32(u32 v) {
  return std::bit_cast<f32>(v);
}
LATHE_DEVICE u64 as_u64(f64 v) {
  return std::bit_cast<u64>(v);
}
LATHE_DEVICE f64 as_f64(u64 v) {
  return std::bit_cast<f64>(v);
}
LATHE_DEVICE u32 shuffle_xor(u32 v, int mask) {
  return emulation::exchange(v, (thread_index() & 31) ^ mask);
}
LATHE_DEVICE u32 shuffle(u32 v, int lane) {
  return emulation::exchange(v, lane & 31);
}
LATHE_DEVICE u32 shuffle_of_four(u32 v, int lane) {
  return emulation::exchange(v, (thread_index() & 28) | (lane & 3));
}
LATHE_DEVICE f32 shuffle_xor(f32 v, int mask) {
  return as_f32(shuffle_xor(as_u32(v), mask));
}
LATHE_DEVICE f32 shuffle(f32 v, int lane) {
  return as_f32(shuffle(as_u32(v), lane));
}
LATHE_DEVICE f64 shuffle_xor(f64 v, int mask) {
  const u64 bits = as_u64(v);
  const u32 low = shuffle_xor(static_cast<u32>(bits), mask);
  return as_f64(static_cast<u64>(shuffle_xor(static_cast<u32>(bits >> 32), mask)) << 32 | low);
}

LATHE_DEVICE f32 fma(f32 a, f32 b, f32 c) {
  return std::fma(a, b, c);
}
LATHE_DEVICE f64 fma(f64 a, f64 b, f64 c) {
  return std::fma(a, b, c);
}
LATHE_DEVICE f32 divide(f32 a, f32 b) {
  return a / b;
}
LATHE_DEVICE f32 square_root(f32 a) {
  return std::sqrt(a);
}
LATHE_DEVICE f32 round_even(f32 a) {
  return std::nearbyint(a);
}

LATHE_DEVICE f32 power_of_two_near(f32 a) {
  return std::exp2(a);
}

// Of every half: products ask for millions.
inline const std::array<f32, 65536> kFloatOfHalf = [] {
  std::array<f32, 65536> floats;
  for (u32 bits = 0; bits < floats.size(); ++bits)
    floats[bits] = lathe::f16_to_f32(static_cast<u16>(bits));
  return floats;
}();
LATHE_DEVICE f32 f16_to_f32(u32 bits) {
  return kFloatOfHalf[bits & 0xffffu];
}
LATHE_DEVICE u16 f32_to_f16(f32 v) {
  return lathe::f32_to_f16(v);
}

LATHE_DEVICE u32 pinned(u32 v) {
  return v;
}

LATHE_DEVICE u32 byte_permute(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 15;
    u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7)) & 255);
    if (nibble & 8) byte = byte & 128 ? 255 : 0;  // its sign, eight times
    r |= byte << (8 * i);
  }
  return r;
}
LATHE_DEVICE u32 masked_or(u32 a, u32 mask, u32 bits) {
  return (a & mask) | bits;
}
LATHE_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) {
  return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> (shift & 31));
}

LATHE_DEVICE u32x4 stream_u32x4(const void* p) {
  return *static_cast<const u32x4*>(p);
}
LATHE_DEVICE f64x2 stream_f64x2(const void* p) {
  return *static_cast<const f64x2*>(p);
}

}  // namespace lathe::dev
