// Owns the f16 operands of matmul made of a chunk's rows: x / rms(x) * weight per token. After a
// post-norm the normed rows first join the residual stream.
#pragma once

#include "ops/matmul_shapes.h"
#include "ops/rms_norm.h"

namespace lathe::dev {

// 1 / rms of a row that thread i has four values of, those from 4 i on, then every `threads`.
LATHE_DEVICE f32 inverse_rms_of_row(const f32* x, int k, int warps, f32 epsilon, f32* shared) {
  f32 squares = 0;
  LATHE_UNROLL(2)
  for (int i = 4 * thread_index(); i < k; i += 4 * warps * kWarp) {
    const f32x4 v = *reinterpret_cast<const f32x4*>(x + i);
    squares = fma(v.x, v.x, squares);
    squares = fma(v.y, v.y, squares);
    squares = fma(v.z, v.z, squares);
    squares = fma(v.w, v.w, squares);
  }
  squares = block_sum(squares, shared, warps);
  return divide(1.0f, square_root(divide(squares, static_cast<f32>(k)) + epsilon));
}

// A block has one token of the chunk[0] there are; k is a multiple of 4.
LATHE_OP norm_tokens(const f32* x, const f32* weight, const f32* post, const f32* stream,
                     f32* joined, const i32* chunk, u8* y, int k, int few, int warps, f32 epsilon) {
  const i64 token = block_x();
  if (token >= chunk[0]) return;
  f32* shared = reinterpret_cast<f32*>(shared_memory());
  const f32* row = x + token * k;
  const int step = 4 * warps * kWarp;
  f32 factor = inverse_rms_of_row(row, k, warps, epsilon, shared);
  if (post) {
    f32* sums = joined + token * k;
    LATHE_UNROLL(2)
    for (int i = 4 * thread_index(); i < k; i += step) {
      const f32x4 v = *reinterpret_cast<const f32x4*>(row + i);
      const f32x4 w = *reinterpret_cast<const f32x4*>(post + i);
      const f32x4 old = *reinterpret_cast<const f32x4*>(stream + token * k + i);
      *reinterpret_cast<f32x4*>(sums + i) = {
          fma(v.x * factor, w.x, old.x), fma(v.y * factor, w.y, old.y),
          fma(v.z * factor, w.z, old.z), fma(v.w * factor, w.w, old.w)};
    }
    row = sums;  // each thread reads what it has itself written
    factor = inverse_rms_of_row(row, k, warps, epsilon, shared + warps);
  }
  factor = factor * 0.0625f;
  u16* to = reinterpret_cast<u16*>(y);
  const int width = operand_width(k);
  LATHE_UNROLL(2)
  for (int before = 0; before < width; before += step) {
    const int i = before + 4 * thread_index();
    u32 pairs[2] = {0, 0};
    if (i < k) {
      const f32x4 v = *reinterpret_cast<const f32x4*>(row + i);
      const f32x4 w = *reinterpret_cast<const f32x4*>(weight + i);
      pairs[0] = half2(v.x * factor * w.x, v.z * factor * w.z);
      pairs[1] = half2(v.y * factor * w.y, v.w * factor * w.w);
    }
    if (i < width) {
      const i64 place = operand_place(static_cast<int>(token), i, width, few);
      *reinterpret_cast<u32*>(to + place) = pairs[0];
      *reinterpret_cast<u32*>(to + (place ^ 8)) = pairs[1];
    }
    if (few == 0) continue;
    f32 sum = (f16_to_f32(pairs[0]) + f16_to_f32(pairs[0] >> 16)) +
              (f16_to_f32(pairs[1]) + f16_to_f32(pairs[1] >> 16));
    sum = sum + shuffle_xor(sum, 1);
    sum = sum + shuffle_xor(sum, 2);
    if (i < width && i % 16 == 0)
      to[operand_mean_place(static_cast<int>(token), i, width, few)] = f32_to_f16(sum * 0.0625f);
  }
}

}  // namespace lathe::dev
