// Owns what counts as a right choice of atoms: f32 and double precision may each take another of
// two atoms whose products differ by a rounding, and what follows then differs altogether. So a
// kernel's words are held to the rule and not to the oracle's words.
#pragma once

#include <span>
#include <string>

#include "verification/kernel_case.h"

namespace lathe::verification {

// Of a kv_append with atoms. Walks through each vector's words, here and in the oracle's: no atom's
// product with what they have left over may be greater than the chosen one's, nor their coefficient
// be away from the product, by more than 4e-6 of what f32 had to do with; of atoms that are the
// same but for the sign the first is chosen; where there is NaN, so are the coefficients. Empty, or
// the first word that is wrong, or a byte that nobody should have written.
std::string atoms_problem(const KernelCase& kernel_case, std::span<const Bytes> expected,
                          std::span<const Bytes> actual);

}  // namespace lathe::verification
