// Owns y[n] = W[n][k] . x[k] (* scale) (+ bias) (+ residual) for an x that was rounded to blocks of
// signed bytes, q8_1 or q8_k: products of integers, four at a time, which are exact; then one
// factor for each run of 16.
//
// A warp computes `rows` rows, its lanes taking units of 32 weights along k in turn. What it needs
// of x stays in registers from row to row.
#pragma once

#include "ops/formats.h"
#include "ops/gemv.h"

namespace lathe::dev {

// 16 of x's integers from `at` on, a multiple of 16, and their factor. A block of q8_k
// (`long_blocks`) is a float, 256 bytes and sums; one of q8_1 two halves and 32 bytes.
LATHE_DEVICE f32 load_rounded(const u8* x, int at, int long_blocks, u32* words) {
  const u8* block =
      long_blocks ? x + static_cast<i64>(at / 256) * 292 : x + static_cast<i64>(at / 32) * 36;
  const u8* from = block + 4 + (long_blocks ? at % 256 : at % 32);
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) words[i] = load_u32(from + 4 * i);
  return long_blocks ? as_f32(load_u32(block)) : f16_to_f32(load_u16(block));
}

// Bytes minus zero, as signed bytes. No byte is less than zero by more than it may be: bit 7 keeps
// each difference from borrowing of the next byte.
template <class Decoder>
LATHE_DEVICE u32 signed_bytes(u32 word) {
  const u32 zeros = static_cast<u32>(Decoder::zero) * 0x01010101u;
  if (Decoder::zero == 0) return word;
  if (Decoder::zero == 128) return word ^ zeros;
  return ((word | 0x80808080u) - zeros) ^ 0x80808080u;
}

LATHE_DEVICE i32 dot16(const u32* a, const u32* b) {
  i32 sum = 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) sum = dot4(a[i], b[i], sum);
  return sum;
}
LATHE_DEVICE i32 sum16(const u32* a) {
  i32 sum = 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) sum = dot4(a[i], 0x01010101u, sum);
  return sum;
}

template <class Decoder>
LATHE_DEVICE void gemv_dot(const u8* w, const u8* x, const f32* scales, const f32* bias,
                           const f32* residual, f32* y, int k, int n, int warps, int rows,
                           int long_blocks) {
  const i64 row_bytes = static_cast<i64>(k / Decoder::block) * Decoder::bytes;
  const int row = (block_x() * warps + warp_index()) * rows, units = k / 32;
  f32 acc[kGemvMaxRows] = {};
  LATHE_UNROLL(2)
  for (int step = 0; step < ceil_div(units, kWarp); ++step) {
    const int unit = step * kWarp + lane_index();
    if (units % kWarp && unit >= units) break;
    const int block = unit / Decoder::units, part = unit % Decoder::units;
    u32 q[8];
    f32 factor[2], sum[2];
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const int at = block * Decoder::block + Decoder::run(part, r);
      factor[r] = load_rounded(x, at, long_blocks, q + 4 * r);
      if (Decoder::has_offset) sum[r] = factor[r] * static_cast<f32>(sum16(q + 4 * r));
    }
    const u8* blocks = w + static_cast<i64>(block) * Decoder::bytes;
    LATHE_UNROLL(8)
    for (int i = 0; i < kGemvMaxRows; ++i) {
      if (i >= rows) break;
      const u8* p = blocks + min_int(row + i, n - 1) * row_bytes;
      u32 words[8];
      Unit u;
      Decoder::bytes_of(p, part, words);
      Decoder::scales_of(p, part, u);
      f32 a = acc[i];
      LATHE_UNROLL(2)
      for (int r = 0; r < 2; ++r) {
        LATHE_UNROLL(4)
        for (int j = 0; j < 4; ++j) words[4 * r + j] = signed_bytes<Decoder>(words[4 * r + j]);
        a = fma(u.scale[r], factor[r] * static_cast<f32>(dot16(words + 4 * r, q + 4 * r)), a);
        if (Decoder::has_offset) a = fma(u.offset[r], sum[r], a);
      }
      acc[i] = a;
    }
  }
  gemv_results(acc, scales, bias, residual, y, n, row, rows);
}

#define LATHE_DOT_OP(name, Decoder)                                                                \
  LATHE_OP name(const u8* w, const u8* x, const f32* scales, const f32* bias, const f32* residual, \
                f32* y, int k, int n, int warps, int rows, int long_blocks) {                      \
    gemv_dot<Decoder>(w, x, scales, bias, residual, y, k, n, warps, rows, long_blocks);            \
  }

LATHE_DOT_OP(gemv_dot_q4_0, Q4_0)
LATHE_DOT_OP(gemv_dot_q4_1, Q4_1)
LATHE_DOT_OP(gemv_dot_q5_0, Q5_0)
LATHE_DOT_OP(gemv_dot_q5_1, Q5_1)
LATHE_DOT_OP(gemv_dot_q8_0, Q8_0)
LATHE_DOT_OP(gemv_dot_q4_k, Q4_K)
LATHE_DOT_OP(gemv_dot_q5_k, Q5_K)
LATHE_DOT_OP(gemv_dot_q6_k, Q6_K)
LATHE_DOT_OP(gemv_dot_q4_k_soa, Q4_K_SoA)

}  // namespace lathe::dev
