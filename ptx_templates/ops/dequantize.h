// Owns y[n][k]: the values of blocks, as f32 or f16.
#pragma once

#include "ops/formats.h"

namespace lathe::dev {

// Four consecutive numbers from `at` on, a multiple of four. Halves are joined to words, not to one
// u64: of that, ptxas 13.0 writes one word to the other's register.
LATHE_DEVICE void store_four(void* y, i64 at, const f32* values, int halves) {
  if (halves) {
    const u32 low = f32_to_f16(values[0]) | static_cast<u32>(f32_to_f16(values[1])) << 16;
    const u32 high = f32_to_f16(values[2]) | static_cast<u32>(f32_to_f16(values[3])) << 16;
    *reinterpret_cast<u32x2*>(static_cast<u16*>(y) + at) = {low, high};
  } else {
    *reinterpret_cast<f32x4*>(static_cast<f32*>(y) + at) = {values[0], values[1], values[2],
                                                            values[3]};
  }
}
LATHE_DEVICE void store_one(void* y, i64 at, f32 value, int halves) {
  if (halves)
    static_cast<u16*>(y)[at] = f32_to_f16(value);
  else
    static_cast<f32*>(y)[at] = value;
}

// A thread has a unit of blocks, which lie one after the other whatever the rows.
template <class Decoder>
LATHE_DEVICE void dequantize_blocks(const u8* blocks, void* y, int k, int n, int warps,
                                    int halves) {
  const i64 unit = static_cast<i64>(block_x()) * (warps * kWarp) + thread_index();
  if (unit >= static_cast<i64>(k / 32) * n) return;
  const i64 block = unit / Decoder::units;
  const int part = static_cast<int>(unit % Decoder::units);
  Unit u;
  Decoder::decode(blocks + block * Decoder::bytes, part, u);
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    const i64 at = block * Decoder::block + Decoder::run(part, r);
    LATHE_UNROLL(4)
    for (int j = 0; j < 16; j += 4) {
      f32 values[4];
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) values[i] = unit_value<Decoder>(u, r, j + i);
      store_four(y, at + j, values, halves);
    }
  }
}

// A thread has one number.
template <class Decoder>
LATHE_DEVICE void dequantize_values(const u8* blocks, void* y, int k, int n, int warps,
                                    int halves) {
  const i64 i = static_cast<i64>(block_x()) * (warps * kWarp) + thread_index();
  if (i < static_cast<i64>(k) * n) store_one(y, i, Decoder::value(blocks, i), halves);
}

#define LATHE_DEQUANTIZE_OP(name, body, Decoder)                                  \
  LATHE_OP name(const u8* blocks, void* y, int k, int n, int warps, int halves) { \
    body<Decoder>(blocks, y, k, n, warps, halves);                                \
  }

LATHE_DEQUANTIZE_OP(dequantize_f32, dequantize_values, F32)
LATHE_DEQUANTIZE_OP(dequantize_f16, dequantize_values, F16)
LATHE_DEQUANTIZE_OP(dequantize_bf16, dequantize_values, BF16)
LATHE_DEQUANTIZE_OP(dequantize_q4_0, dequantize_blocks, Q4_0)
LATHE_DEQUANTIZE_OP(dequantize_q4_1, dequantize_blocks, Q4_1)
LATHE_DEQUANTIZE_OP(dequantize_q5_0, dequantize_blocks, Q5_0)
LATHE_DEQUANTIZE_OP(dequantize_q5_1, dequantize_blocks, Q5_1)
LATHE_DEQUANTIZE_OP(dequantize_q8_0, dequantize_blocks, Q8_0)
LATHE_DEQUANTIZE_OP(dequantize_q4_k, dequantize_blocks, Q4_K)
LATHE_DEQUANTIZE_OP(dequantize_q5_k, dequantize_blocks, Q5_K)
LATHE_DEQUANTIZE_OP(dequantize_q6_k, dequantize_blocks, Q6_K)
LATHE_DEQUANTIZE_OP(dequantize_q2_k, dequantize_blocks, Q2_K)
LATHE_DEQUANTIZE_OP(dequantize_q3_k, dequantize_blocks, Q3_K)
LATHE_DEQUANTIZE_OP(dequantize_iq4_nl, dequantize_blocks, IQ4_NL)
LATHE_DEQUANTIZE_OP(dequantize_iq4_xs, dequantize_blocks, IQ4_XS)
LATHE_DEQUANTIZE_OP(dequantize_mxfp4, dequantize_blocks, MXFP4)
LATHE_DEQUANTIZE_OP(dequantize_q8_1, dequantize_blocks, Q8_1)
LATHE_DEQUANTIZE_OP(dequantize_q8_1_tail, dequantize_blocks, Q8_1_Tail)
LATHE_DEQUANTIZE_OP(dequantize_q8_k, dequantize_blocks, Q8_K)
LATHE_DEQUANTIZE_OP(dequantize_q4_k_soa, dequantize_blocks, Q4_K_SoA)
LATHE_DEQUANTIZE_OP(dequantize_fp8_e4m3, dequantize_values, FP8_E4M3)
LATHE_DEQUANTIZE_OP(dequantize_ternary, dequantize_blocks, Ternary)
LATHE_DEQUANTIZE_OP(dequantize_f64, dequantize_values, F64)

}  // namespace lathe::dev
