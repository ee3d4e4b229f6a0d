// Owns the oracle's way from a vector to its atoms and back.
#include "codegen/kernels/kv_atoms.h"

#include <algorithm>
#include <cmath>

#include "codegen/kernels/rows.h"
#include "lathe/codegen/format.h"

namespace lathe {
namespace {

double product(const double* x, const float* atom, int head_dim) {
  double sum = 0;
  for (int e = 0; e < head_dim; ++e) sum += x[e] * static_cast<double>(atom[e]);
  return sum;
}

// What is finite stays so.
std::uint16_t coefficient_word(double product) {
  if (std::isfinite(product)) product = std::clamp(product, -65504.0, 65504.0);
  return f32_to_f16(static_cast<float>(product));
}

}  // namespace

double coefficient_of(std::uint32_t word) {
  return static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(word)));
}

Result<void> check_atoms(const KernelKey& key) {
  if (key.atoms == 0) {
    if (key.terms == 0) return {};
    return invalid("terms is {}, and there are no atoms; it must be 0", key.terms);
  }
  LATHE_TRY(in_range("atoms", key.atoms, 1, kMostAtoms));
  LATHE_TRY(in_range("terms", key.terms, 1, kMostTerms));
  LATHE_TRY(in_range("head_dim", key.head_dim, 2, 64 * dev::kAttentionMaxPairs));
  if (key.head_dim % 2) return invalid("head_dim is {}; with atoms it must be even", key.head_dim);
  if (key.format != Format::f32)
    return invalid("atoms are f32, and the format is {}", row(key.format).name);
  if (key.paged) return invalid("a KV cache of atoms lies in a row, not in pages");
  return {};
}

std::vector<Param> atom_tables(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.atoms} * key.head_dim;
  return {vector_in("k_atoms", values), vector_in("v_atoms", values)};
}

void encode_vector(const KernelKey& key, const float* x, const float* table, std::uint32_t* words) {
  const int d = key.head_dim;
  std::vector<double> left(x, x + d);
  for (int term = 0; term < key.terms; ++term) {
    int id = 0;
    double best = -1;
    for (int atom = 0; atom < key.atoms; ++atom) {
      const double size = std::abs(product(left.data(), table + std::int64_t{atom} * d, d));
      if (size > best) best = size, id = atom;
    }
    const float* chosen = table + std::int64_t{id} * d;
    const std::uint16_t coefficient = coefficient_word(product(left.data(), chosen, d));
    words[term] = atom_word(static_cast<std::uint32_t>(id), coefficient);
    for (int e = 0; e < d; ++e)
      left[static_cast<std::size_t>(e)] -=
          coefficient_of(words[term]) * static_cast<double>(chosen[e]);
  }
}

void decode_vector(const KernelKey& key, const std::uint32_t* words, const float* table,
                   double* out) {
  const int d = key.head_dim;
  std::fill_n(out, d, 0.0);
  for (int term = 0; term < key.terms; ++term) {
    const float* atom = table + std::int64_t{atom_of(words[term])} * d;
    for (int e = 0; e < d; ++e)
      out[e] += coefficient_of(words[term]) * static_cast<double>(atom[e]);
  }
}

}  // namespace lathe
