// Owns the rounding of vectors to blocks of signed bytes with a scale: what the CPU's codecs
// (codegen/format_q8_blocks.cpp) give, bit for bit. A warp makes a block.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

LATHE_DEVICE f32 magnitude(f32 x) {
  return as_f32(as_u32(x) & 0x7fffffffu);
}
// What is no number gets the code 0.
LATHE_DEVICE f32 nearest_code(f32 x, f32 scale) {
  if (scale == 0) return 0;
  const f32 q = round_even(divide(x, scale));
  if (q != q) return 0;
  return q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q;
}
LATHE_DEVICE void store_u16(u8* p, u16 value) {
  *reinterpret_cast<u16*>(p) = value;
}
LATHE_DEVICE u8 signed_byte(f32 code) {
  return static_cast<u8>(static_cast<int>(code));
}

// Which block is this warp's; `blocks` or more for the warps past the last.
LATHE_DEVICE i64 block_of_warp(int warps) {
  return static_cast<i64>(block_x()) * warps + warp_index();
}

// Blocks of 32, of which each lane has a value. `codes_at` and `scale_at`: where they stand in a
// block of so many bytes. The sum is that of the codes times the scale, or of the values, or left
// out.
enum : int { kNoSum, kSumOfCodes, kSumOfValues };
LATHE_DEVICE void quantize_32(const f32* x, u8* blocks, int k, int n, int warps, int bytes,
                              int codes_at, int scale_at, int sum) {
  const i64 block = block_of_warp(warps);
  if (block >= static_cast<i64>(k / 32) * n) return;
  const f32 value = x[block * 32 + lane_index()];
  const f32 counted = magnitude(value) > 0 ? magnitude(value) : 0.0f;  // NaN has no magnitude
  const u16 scale = f32_to_f16(divide(warp_max(counted), 127.0f));
  const f32 code = nearest_code(value, f16_to_f32(scale));
  u8* p = blocks + block * bytes;
  p[codes_at + lane_index()] = signed_byte(code);
  f32 total = 0;
  if (sum == kSumOfCodes) total = f16_to_f32(scale) * warp_sum(code);
  if (sum == kSumOfValues) total = warp_sum(value);
  if (lane_index() != 0) return;
  store_u16(p + scale_at, scale);
  if (sum != kNoSum) store_u16(p + scale_at + 2, f32_to_f16(total));
}

LATHE_OP quantize_q8_0(const f32* x, u8* blocks, int k, int n, int warps) {
  quantize_32(x, blocks, k, n, warps, 34, 2, 0, kNoSum);
}
LATHE_OP quantize_q8_1(const f32* x, u8* blocks, int k, int n, int warps) {
  quantize_32(x, blocks, k, n, warps, 36, 4, 0, kSumOfCodes);
}
LATHE_OP quantize_q8_1_tail(const f32* x, u8* blocks, int k, int n, int warps) {
  quantize_32(x, blocks, k, n, warps, 36, 0, 32, kSumOfValues);
}

// Blocks of 256, of which each lane has eight values.
LATHE_OP quantize_q8_k(const f32* x, u8* blocks, int k, int n, int warps) {
  const i64 block = block_of_warp(warps);
  if (block >= static_cast<i64>(k / 256) * n) return;
  const f32* from = x + block * 256 + lane_index() * 8;
  const f32x4 a = *reinterpret_cast<const f32x4*>(from);
  const f32x4 b = *reinterpret_cast<const f32x4*>(from + 4);
  const f32 values[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  f32 greatest = 0;
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i)
    greatest = magnitude(values[i]) > greatest ? magnitude(values[i]) : greatest;
  const f32 scale = divide(warp_max(greatest), 127.0f);
  u32 words[2] = {0, 0};
  f32 sum = 0;
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    const f32 code = nearest_code(values[i], scale);
    sum = sum + code;
    words[i / 4] |= static_cast<u32>(signed_byte(code)) << (i % 4 * 8);
  }
  const f32 pair = sum + shuffle_xor(sum, 1);  // of the lane beside: 16 codes
  u8* p = blocks + block * 292;
  u32* codes = reinterpret_cast<u32*>(p + 4 + lane_index() * 8);
  codes[0] = words[0];
  codes[1] = words[1];
  if (lane_index() % 2 == 0)
    store_u16(p + 260 + lane_index(), static_cast<u16>(static_cast<int>(pair)));
  if (lane_index() == 0) *reinterpret_cast<f32*>(p) = scale;
}

}  // namespace lathe::dev
