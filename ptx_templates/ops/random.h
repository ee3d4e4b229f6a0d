// Owns random numbers without state: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011), which makes
// of a counter and a key four words that look random. Integer arithmetic only, so a seed and a
// position give the same number everywhere, in any order.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

LATHE_DEVICE u32x4 philox(u32x4 counter, u32 key_low, u32 key_high) {
  LATHE_UNROLL(1)
  for (int round = 0; round < 10; ++round) {
    const u64 a = static_cast<u64>(0xd2511f53u) * counter.x;
    const u64 b = static_cast<u64>(0xcd9e8d57u) * counter.z;
    counter = {static_cast<u32>(b >> 32) ^ counter.y ^ key_low, static_cast<u32>(b),
               static_cast<u32>(a >> 32) ^ counter.w ^ key_high, static_cast<u32>(a)};
    key_low += 0x9e3779b9u;
    key_high += 0xbb67ae85u;
  }
  return counter;
}

// Uniform in [0, 1), a multiple of 2^-24: the number that the seed has for this position.
LATHE_DEVICE f32 uniform_at(u32 seed_low, u32 seed_high, i32 position) {
  const u32x4 words = philox({static_cast<u32>(position), 0, 0, 0}, seed_low, seed_high);
  return static_cast<f32>(words.x >> 8) * 5.9604644775390625e-8f;
}

}  // namespace lathe::dev
