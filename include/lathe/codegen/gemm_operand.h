// Owns the operands of the kernel gemm on the host: how large they are, and the exact way from rows
// of numbers to them. ptx_templates/ops/gemm_shapes.h states their order. Products of f64 have
// none: they take rows as they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lathe/codegen/format.h"

namespace lathe {

// Whether operands have this form: f32 keeps 22 bits of every number in two planes of f16; f16,
// bf16 and fp8_e4m3 have one plane.
bool has_gemm_operands(Format form);
// Whether numbers of this format can become operands.
bool makes_gemm_operands(Format source);

// Bytes of an operand of `rows` rows of k numbers.
std::int64_t gemm_operand_bytes(Format form, int rows, int k);

// What the numbers of a row are over before they become fp8_e4m3, and its sums times after: its
// greatest magnitude over 448, 2^-126 at least. NaN where a number is not finite.
float gemm_row_factor(std::span<const float> numbers);
// The numbers of a row as its operand of fp8_e4m3 has them, times the factor. With one that is not
// finite all are NaN.
void round_gemm_row(std::span<const float> numbers, std::span<double> rounded);

// Writes row blocks [first, last) of the operand, of 128 rows each, and what each row is over.
// `numbers` is the whole matrix, rows of f32, f16 or bf16 without gaps; padding becomes zeros. A
// row with a number that is not finite gives results that are none.
void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand, int first, int last);
// All of it.
void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand);

}  // namespace lathe
