// Owns what each arithmetic instruction of PTX computes from its operands.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/codegen/ptx_program.h"

namespace lathe::testing {

// A value of this type in 64 bits: sign-extended if it is signed.
std::uint64_t ptx_widened(std::uint64_t value, PtxType type);

// The result for up to four inputs; nothing for an instruction that is not known. Sums, products
// and quotients of f32 must say that they round to the nearest.
std::optional<std::uint64_t> ptx_arithmetic(const PtxInstruction& instruction,
                                            const std::uint64_t (&in)[4]);

}  // namespace lathe::testing
