// Owns the operands of the kernel gemm on the host: how large they are, and the exact way from rows
// of numbers to them. ptx_templates/ops/gemm_shapes.h states their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lathe/codegen/format.h"

namespace lathe {

// Whether operands have this form: f32 keeps 22 bits of every number in two planes of f16, f16 and
// bf16 have one plane.
bool has_gemm_operands(Format form);

// Bytes of an operand of `rows` rows of k numbers.
std::int64_t gemm_operand_bytes(Format form, int rows, int k);

// Writes row blocks [first, last) of the operand, of 128 rows each, and their exponents. `numbers`
// is the whole matrix, rows of f32, f16 or bf16 without gaps; padding becomes zeros. A row with a
// number that is not finite gives results that are none.
void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand, int first, int last);
// All of it.
void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand);

}  // namespace lathe
