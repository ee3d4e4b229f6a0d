// Owns y = activation(x w^T + bias) of dense operands (ops/gemm_shapes.h), by the matrix units, in
// f32. Blocks go from tile to tile, `blocks` apart.
//
// The faithful form has two f16 planes, 22 bits of each number, and takes three products of them;
// the others have one plane of f16, bf16 or e4m3.
#pragma once

#include "ops/gemm_grouped.h"
#include "ops/gemm_plain.h"

namespace lathe::dev {

// What four warps do together has no instructions elsewhere, so it has ops of its own.
#define LATHE_GEMM_OP(name, way, Form)                                                  \
  LATHE_OP name(const u8* x, const u8* w, const f32* bias, f32* y, int m, int n, int k, \
                int blocks, int activation) {                                           \
    way<Form>({x, w, bias, y, m, n, gemm_words(k, Form::eight), blocks, activation});   \
  }
LATHE_GEMM_OP(gemm_f32, gemm_plain, GemmFaithful)
LATHE_GEMM_OP(gemm_f16, gemm_plain, GemmHalf)
LATHE_GEMM_OP(gemm_bf16, gemm_plain, GemmBrain)
LATHE_GEMM_OP(gemm_fp8_e4m3, gemm_plain, GemmEight)
LATHE_GEMM_OP(gemm_f32_grouped, gemm_grouped, GemmFaithful)
LATHE_GEMM_OP(gemm_f16_grouped, gemm_grouped, GemmHalf)
LATHE_GEMM_OP(gemm_bf16_grouped, gemm_grouped, GemmBrain)
LATHE_GEMM_OP(gemm_fp8_e4m3_grouped, gemm_grouped, GemmEight)
#undef LATHE_GEMM_OP

}  // namespace lathe::dev
