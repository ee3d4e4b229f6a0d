// Owns what the CPU's block codecs share: bytes, stored halves, the nearest code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lathe/codegen/format.h"

namespace lathe::block_codec {

using u8 = std::uint8_t;

inline const u8* bytes(const std::byte* p) {
  return reinterpret_cast<const u8*>(p);
}
inline u8* bytes(std::byte* p) {
  return reinterpret_cast<u8*>(p);
}

inline float load_half(const u8* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f16_to_f32(bits);
}

// Stores a half and returns what was stored, so that codes are chosen for the stored scale.
inline float store_half(u8* p, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(p, &bits, 2);
  return f16_to_f32(bits);
}

// What is no number gets the code 0.
inline int code(float value, float scale, int low, int high) {
  float q = scale != 0 ? std::nearbyint(value / scale) : 0;
  if (std::isnan(q)) q = 0;
  return static_cast<int>(std::clamp(q, static_cast<float>(low), static_cast<float>(high)));
}

inline float greatest_magnitude(const float* x, int count) {
  float top = 0;
  for (int i = 0; i < count; ++i) top = std::max(top, std::fabs(x[i]));
  return top;
}

}  // namespace lathe::block_codec
