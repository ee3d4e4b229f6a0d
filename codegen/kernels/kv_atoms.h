// Owns keys and values as sums of atoms, on the host: what keys may have them, and a vector's words
// in double precision. Device code: ptx_templates/ops/kv_atoms.h.
#pragma once

#include <cstdint>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/result.h"

namespace lathe {

// The number of an atom << 16 | a coefficient in f16.
constexpr std::uint32_t atom_word(std::uint32_t id, std::uint16_t coefficient) {
  return id << 16 | coefficient;
}
constexpr std::uint32_t atom_of(std::uint32_t word) {
  return word >> 16;
}
double coefficient_of(std::uint32_t word);

// The atoms and terms of kv_append and attention, which may be 0, and the head_dim that goes with
// them.
Result<void> check_atoms(const KernelKey& key);
// The tables of keys and of values: key.atoms rows of key.head_dim floats.
std::vector<Param> atom_tables(const KernelKey& key);

// Chooses key.terms atoms for a vector of key.head_dim: each time the one whose product with what
// is left has the greatest magnitude, ties to the lower number; NaN never wins. Its product, as
// f16, times the atom is taken away. Where nothing can win, the coefficient is NaN.
void encode_vector(const KernelKey& key, const float* x, const float* table, std::uint32_t* words);
// Numbers of atoms in `words` are below key.atoms.
void decode_vector(const KernelKey& key, const std::uint32_t* words, const float* table,
                   double* out);

}  // namespace lathe
