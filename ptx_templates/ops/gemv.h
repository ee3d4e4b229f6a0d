// Owns y[n] = W[n][k] . x[k] (* scale) (+ bias) (+ residual) for one column x of f32 or f16: matrix
// rows in any format.
//
// A warp computes `rows` rows, its lanes taking units of 32 weights along k in turn. The block
// stages x in shared memory, a chunk at a time, each run of 16 values padded to 20 so that the 32
// lanes' 16-byte reads fall in different banks.
#pragma once

#include "ops/formats.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

LATHE_DEVICE f32* staged(f32* x, int i) {
  return x + i + i / 16 * 4;
}

LATHE_DEVICE f32 number(f32 value) {
  return value;
}
LATHE_DEVICE f32 number(u16 half) {
  return f16_to_f32(half);
}
LATHE_DEVICE f32x4 four_numbers(const f32* x) {
  return *reinterpret_cast<const f32x4*>(x);
}
LATHE_DEVICE f32x4 four_numbers(const u16* x) {
  const u64 v = *reinterpret_cast<const u64*>(x);
  const u32 low = static_cast<u32>(v), high = static_cast<u32>(v >> 32);
  return {f16_to_f32(low), f16_to_f32(low >> 16), f16_to_f32(high), f16_to_f32(high >> 16)};
}

// Copies `count` values of x; the last run is filled up with zeros.
template <class Number>
LATHE_DEVICE void stage(const Number* x, f32* shared, int count, int threads) {
  const int fours = ceil_div(count, 16) * 4;
  LATHE_UNROLL(2)
  for (int step = 0; step < ceil_div(fours, threads); ++step) {
    const int i = (step * threads + thread_index()) * 4;
    if (i >= fours * 4) break;
    f32x4 v = {0, 0, 0, 0};
    if (count % 4 == 0) {
      if (i < count) v = four_numbers(x + i);
    } else {
      if (i < count) v.x = number(x[i]);
      if (i + 1 < count) v.y = number(x[i + 1]);
      if (i + 2 < count) v.z = number(x[i + 2]);
      if (i + 3 < count) v.w = number(x[i + 3]);
    }
    *reinterpret_cast<f32x4*>(staged(shared, i)) = v;
  }
}

LATHE_DEVICE void load_run(const f32* shared, int i, f32* out) {
  const f32* from = shared + i + i / 16 * 4;
  LATHE_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    const f32x4 v = *reinterpret_cast<const f32x4*>(from + 4 * j);
    out[4 * j] = v.x;
    out[4 * j + 1] = v.y;
    out[4 * j + 2] = v.z;
    out[4 * j + 3] = v.w;
  }
}

// Sum of the products of 16 pairs, in four chains.
LATHE_DEVICE f32 dot16(const f32* a, const f32* b) {
  f32 s[4];
  LATHE_UNROLL(4)
  for (int j = 0; j < 4; ++j) s[j] = a[j] * b[j];
  LATHE_UNROLL(12)
  for (int j = 4; j < 16; ++j) s[j % 4] = fma(a[j], b[j], s[j % 4]);
  return (s[0] + s[1]) + (s[2] + s[3]);
}
LATHE_DEVICE f32 sum16(const f32* a) {
  f32 s[4];
  LATHE_UNROLL(4)
  for (int j = 0; j < 4; ++j) s[j] = (a[j] + a[j + 4]) + (a[j + 8] + a[j + 12]);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

// Adds the products of one staged chunk [first, first + count) to acc.
template <class Decoder>
LATHE_DEVICE void gemv_blocks(const u8* w, const f32* shared, f32* acc, int k, int n, int row,
                              int rows, int first, int count) {
  const i64 row_bytes = static_cast<i64>(k / Decoder::block) * Decoder::bytes;
  const int units = count / 32;
  LATHE_UNROLL(2)
  for (int step = 0; step < ceil_div(units, kWarp); ++step) {
    const int unit = step * kWarp + lane_index();
    if (units % kWarp && unit >= units) break;
    const int block = unit / Decoder::units, part = unit % Decoder::units;
    const int at = block * Decoder::block;
    f32 x[32], sum[2];
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      load_run(shared, at + Decoder::run(part, r), x + 16 * r);
      if (Decoder::has_offset) sum[r] = sum16(x + 16 * r);
    }
    const u8* p = w + static_cast<i64>(first / Decoder::block + block) * Decoder::bytes;
    LATHE_UNROLL(8)
    for (int i = 0; i < kGemvMaxRows; ++i) {
      if (i >= rows) break;
      Unit u;
      Decoder::decode(p + min_int(row + i, n - 1) * row_bytes, part, u);
      f32 a = fma(u.scale[0], dot16(u.q, x), acc[i]);
      a = fma(u.scale[1], dot16(u.q + 16, x + 16), a);
      if (Decoder::has_offset) {
        a = fma(u.offset[0], sum[0], a);
        a = fma(u.offset[1], sum[1], a);
      }
      acc[i] = a;
    }
  }
}

// The same for unquantized rows: 8 values at a time where every row starts on 16 bytes.
template <class Decoder>
LATHE_DEVICE void gemv_values(const u8* w, const f32* shared, f32* acc, int k, int n, int row,
                              int rows, int first, int count) {
  const i64 row_bytes = static_cast<i64>(k) * Decoder::bytes;
  if (k % (16 / Decoder::bytes) == 0 && count % 8 == 0) {
    LATHE_UNROLL(2)
    for (int step = 0; step < ceil_div(count / 8, kWarp); ++step) {
      const int i = (step * kWarp + lane_index()) * 8;
      if (count % 256 && i >= count) break;
      const f32* from = shared + i + i / 16 * 4;
      const f32x4 x0 = *reinterpret_cast<const f32x4*>(from);
      const f32x4 x1 = *reinterpret_cast<const f32x4*>(from + 4);
      LATHE_UNROLL(8)
      for (int r = 0; r < kGemvMaxRows; ++r) {
        if (r >= rows) break;
        f32 v[8];
        Decoder::eight(
            w + min_int(row + r, n - 1) * row_bytes + static_cast<i64>(first + i) * Decoder::bytes,
            v);
        f32 a = fma(v[0], x0.x, acc[r]);
        f32 b = v[1] * x0.y;
        a = fma(v[2], x0.z, a);
        b = fma(v[3], x0.w, b);
        a = fma(v[4], x1.x, a);
        b = fma(v[5], x1.y, b);
        a = fma(v[6], x1.z, a);
        b = fma(v[7], x1.w, b);
        acc[r] = a + b;
      }
    }
  } else {
    LATHE_UNROLL(4)
    for (int step = 0; step < ceil_div(count, kWarp); ++step) {
      const int i = step * kWarp + lane_index();
      if (count % kWarp && i >= count) break;
      const f32 x = shared[i + i / 16 * 4];
      LATHE_UNROLL(8)
      for (int r = 0; r < kGemvMaxRows; ++r) {
        if (r >= rows) break;
        acc[r] = fma(Decoder::value(w + min_int(row + r, n - 1) * row_bytes, first + i), x, acc[r]);
      }
    }
  }
}

// Sums the lanes' acc, finishes the warp's rows and stores them.
LATHE_DEVICE void gemv_results(const f32* acc, const f32* scales, const f32* bias,
                               const f32* residual, f32* y, int n, int row, int rows) {
  LATHE_UNROLL(8)
  for (int i = 0; i < kGemvMaxRows; ++i) {
    if (i >= rows) break;
    const f32 total = warp_sum(acc[i]);
    if (lane_index() == 0 && row + i < n) {
      f32 out = total;
      if (scales) out = out * scales[row + i];
      if (bias) out = out + bias[row + i];
      if (residual) out = out + residual[row + i];
      y[row + i] = out;
    }
  }
}

template <class Decoder, bool kBlocks>
LATHE_DEVICE void gemv(const u8* w, const void* x, const f32* scales, const f32* bias,
                       const f32* residual, f32* y, int k, int n, int warps, int rows, int halves) {
  f32* shared = reinterpret_cast<f32*>(shared_memory());
  const int row = (block_x() * warps + warp_index()) * rows;
  f32 acc[kGemvMaxRows] = {};
  LATHE_UNROLL(1)
  for (int first = 0; first < k; first += kGemvChunk) {
    if (first > 0) block_barrier();  // everyone is done with the previous chunk
    const int count = min_int(k - first, kGemvChunk);
    if (halves)
      stage(static_cast<const u16*>(x) + first, shared, count, warps * kWarp);
    else
      stage(static_cast<const f32*>(x) + first, shared, count, warps * kWarp);
    block_barrier();
    if constexpr (kBlocks)
      gemv_blocks<Decoder>(w, shared, acc, k, n, row, rows, first, count);
    else
      gemv_values<Decoder>(w, shared, acc, k, n, row, rows, first, count);
  }
  gemv_results(acc, scales, bias, residual, y, n, row, rows);
}

#define LATHE_GEMV_OP(name, Decoder, is_blocks)                                               \
  LATHE_OP name(const u8* w, const void* x, const f32* scales, const f32* bias,               \
                const f32* residual, f32* y, int k, int n, int warps, int rows, int halves) { \
    gemv<Decoder, is_blocks>(w, x, scales, bias, residual, y, k, n, warps, rows, halves);     \
  }

LATHE_GEMV_OP(gemv_f32, F32, false)
LATHE_GEMV_OP(gemv_f16, F16, false)
LATHE_GEMV_OP(gemv_bf16, BF16, false)
LATHE_GEMV_OP(gemv_q4_0, Q4_0, true)
LATHE_GEMV_OP(gemv_q4_1, Q4_1, true)
LATHE_GEMV_OP(gemv_q5_0, Q5_0, true)
LATHE_GEMV_OP(gemv_q5_1, Q5_1, true)
LATHE_GEMV_OP(gemv_q8_0, Q8_0, true)
LATHE_GEMV_OP(gemv_q4_k, Q4_K, true)
LATHE_GEMV_OP(gemv_q5_k, Q5_K, true)
LATHE_GEMV_OP(gemv_q6_k, Q6_K, true)
LATHE_GEMV_OP(gemv_q2_k, Q2_K, true)
LATHE_GEMV_OP(gemv_q3_k, Q3_K, true)
LATHE_GEMV_OP(gemv_iq4_nl, IQ4_NL, true)
LATHE_GEMV_OP(gemv_iq4_xs, IQ4_XS, true)
LATHE_GEMV_OP(gemv_mxfp4, MXFP4, true)
LATHE_GEMV_OP(gemv_q8_1, Q8_1, true)
LATHE_GEMV_OP(gemv_q8_1_tail, Q8_1_Tail, true)
LATHE_GEMV_OP(gemv_q8_k, Q8_K, true)
LATHE_GEMV_OP(gemv_q4_k_soa, Q4_K_SoA, true)
LATHE_GEMV_OP(gemv_fp8_e4m3, FP8_E4M3, false)
LATHE_GEMV_OP(gemv_ternary, Ternary, true)

}  // namespace lathe::dev
