// Owns the way from rows of numbers to an operand of gemm (ops/gemm_shapes.h). A warp makes a row:
// it reads it once for its greatest magnitude and once for its numbers.
#pragma once

#include "ops/formats.h"
#include "ops/gemm_shapes.h"

namespace lathe::dev {

// Eight numbers of the row from i on, zeros past its end.
template <class Numbers>
LATHE_DEVICE void load_numbers(const u8* row, int i, int k, f32 (&v)[8]) {
  if (k % (16 / Numbers::bytes) == 0 && i + 8 <= k) {
    Numbers::eight(row + i * Numbers::bytes, v);
    return;
  }
  LATHE_UNROLL(8)
  for (int j = 0; j < 8; ++j) v[j] = i + j < k ? Numbers::value(row, i + j) : 0.0f;
}

// The greatest magnitude of a row, 0 past the last one, as bits, in every lane; `pieces` are of
// eight numbers.
template <class Numbers>
LATHE_DEVICE u32 greatest_magnitude(const u8* from, int k, int pieces, int row, int rows) {
  f32 v[8];
  u32 greatest = 0;
  LATHE_UNROLL(4)
  for (int piece = lane_index(); piece < pieces; piece += kWarp) {
    if (row >= rows) break;
    load_numbers<Numbers>(from, piece * 8, k, v);
    LATHE_UNROLL(8)
    for (int j = 0; j < 8; ++j) {
      const u32 magnitude = as_u32(v[j]) & 0x7fffffffu;
      greatest = magnitude > greatest ? magnitude : greatest;
    }
  }
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const u32 other = shuffle_xor(greatest, mask);
    greatest = other > greatest ? other : greatest;
  }
  return greatest;
}

// To the nearest, ties to even.
LATHE_DEVICE u32 bf16_bits(f32 v) {
  const u32 bits = as_u32(v);
  return v != v ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

template <class Numbers, bool kBrain, int kPlanes>
LATHE_DEVICE void gemm_operand_row(const u8* x, u8* y, int k, int rows, int warps) {
  const int row = block_x() * warps + warp_index();
  if (row >= gemm_row_blocks(rows) * kGemmRows) return;
  const u8* from = x + static_cast<i64>(row) * k * Numbers::bytes;
  const int pieces = gemm_depth_blocks(k) * 8, depth_blocks = gemm_depth_blocks(k);
  const u32 greatest = greatest_magnitude<Numbers>(from, k, pieces, row, rows);
  const int exponent = gemm_exponent(greatest);
  if (lane_index() == 0)
    reinterpret_cast<i32*>(y + gemm_exponents_at(rows, k, kPlanes))[row] = exponent;
  const f32 factor = as_f32(static_cast<u32>(127 - exponent) << 23);
  f32 v[8];
  LATHE_UNROLL(2)
  for (int piece = lane_index(); piece < pieces; piece += kWarp) {
    u32 words[kPlanes][4] = {};
    if (row < rows) {
      load_numbers<Numbers>(from, piece * 8, k, v);
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        const f32 low = v[2 * j] * factor, high = v[2 * j + 1] * factor;
        if constexpr (kBrain) {
          words[0][j] = bf16_bits(low) | bf16_bits(high) << 16;
        } else {
          const u32 pair = half2(low, high);
          words[0][j] = pair;
          if constexpr (kPlanes == 2)
            words[1][j] = half2(low - f16_to_f32(pair & 0xffffu), high - f16_to_f32(pair >> 16));
        }
      }
    }
    u8* to = y + gemm_piece_at(row, piece, depth_blocks, kPlanes);
    LATHE_UNROLL(2)
    for (int plane = 0; plane < kPlanes; ++plane)
      *reinterpret_cast<u32x4*>(to + plane * kGemmPlaneBytes) = {words[plane][0], words[plane][1],
                                                                 words[plane][2], words[plane][3]};
  }
}

// The row of e4m3: 16 numbers a piece, over a factor by which the greatest of them becomes 448.
template <class Numbers>
LATHE_DEVICE void gemm_operand_eight_row(const u8* x, u8* y, int k, int rows, int warps) {
  const int row = block_x() * warps + warp_index(), words_of_row = gemm_words(k, true);
  if (row >= gemm_row_blocks(rows) * kGemmRows) return;
  const u8* from = x + static_cast<i64>(row) * k * Numbers::bytes;
  const int depth_blocks = gemm_depth_blocks(words_of_row);
  const u32 greatest = greatest_magnitude<Numbers>(from, k, depth_blocks * 16, row, rows);
  const bool finite = greatest < 0x7f800000u;
  const f32 quotient = divide(as_f32(greatest), static_cast<f32>(kGemmEightMost));
  const f32 least = as_f32(kGemmEightLeast);
  const f32 factor = finite ? (quotient < least ? least : quotient) : as_f32(0x7fffffffu);
  if (lane_index() == 0)
    reinterpret_cast<f32*>(y + gemm_exponents_at(rows, words_of_row, 1))[row] = factor;
  const f32 inverse = divide(1.0f, factor);
  LATHE_UNROLL(2)
  for (int piece = lane_index(); piece < depth_blocks * 8; piece += kWarp) {
    u32 words[4] = {};
    if (row < rows && finite) {
      LATHE_UNROLL(2)
      for (int h = 0; h < 2; ++h) {
        f32 v[8];
        load_numbers<Numbers>(from, piece * 16 + 8 * h, k, v);
        LATHE_UNROLL(2)
        for (int j = 0; j < 2; ++j)
          words[2 * h + j] = e4m3_pair(v[4 * j] * inverse, v[4 * j + 1] * inverse) |
                             e4m3_pair(v[4 * j + 2] * inverse, v[4 * j + 3] * inverse) << 16;
      }
    }
    *reinterpret_cast<u32x4*>(y + gemm_piece_at(row, piece, depth_blocks, 1)) = {
        words[0], words[1], words[2], words[3]};
  }
}

// From numbers of one kind to an operand of one form.
#define LATHE_OPERAND_OP(name, Numbers, kBrain, kPlanes)              \
  LATHE_OP name(const u8* x, u8* y, int k, int rows, int warps) {     \
    gemm_operand_row<Numbers, kBrain, kPlanes>(x, y, k, rows, warps); \
  }
LATHE_OPERAND_OP(gemm_operand_f32_of_f32, F32, false, 2)
LATHE_OPERAND_OP(gemm_operand_f32_of_f16, F16, false, 2)
LATHE_OPERAND_OP(gemm_operand_f32_of_bf16, BF16, false, 2)
LATHE_OPERAND_OP(gemm_operand_f16_of_f32, F32, false, 1)
LATHE_OPERAND_OP(gemm_operand_f16_of_f16, F16, false, 1)
LATHE_OPERAND_OP(gemm_operand_f16_of_bf16, BF16, false, 1)
LATHE_OPERAND_OP(gemm_operand_bf16_of_f32, F32, true, 1)
LATHE_OPERAND_OP(gemm_operand_bf16_of_f16, F16, true, 1)
LATHE_OPERAND_OP(gemm_operand_bf16_of_bf16, BF16, true, 1)
#undef LATHE_OPERAND_OP
#define LATHE_EIGHT_OP(name, Numbers)                             \
  LATHE_OP name(const u8* x, u8* y, int k, int rows, int warps) { \
    gemm_operand_eight_row<Numbers>(x, y, k, rows, warps);        \
  }
LATHE_EIGHT_OP(gemm_operand_fp8_e4m3_of_f32, F32)
LATHE_EIGHT_OP(gemm_operand_fp8_e4m3_of_f16, F16)
LATHE_EIGHT_OP(gemm_operand_fp8_e4m3_of_bf16, BF16)
#undef LATHE_EIGHT_OP

}  // namespace lathe::dev
