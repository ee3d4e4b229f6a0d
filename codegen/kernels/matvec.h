// Owns the sizes of matvec kernels that plans and persistent kernels also want, and what products
// of tiles have in common, be it with one vector or those of a chunk.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "lathe/codegen/kernel_table.h"

namespace lathe {

// The matrices of a matvec key; those with n 0 are not there.
struct MatrixOfKey {
  Format format;
  int n;
};
inline std::array<MatrixOfKey, 3> matrices(const KernelKey& key) {
  return {{{key.format, key.n}, {key.format_b, key.n_b}, {key.format_c, key.n_c}}};
}

// Sizes and formats of the matrices, and of gates and ups those that both kernels want.
Result<void> check_matrices(const KernelKey& key, int most_rows);
// Of y.
int rows_of(const KernelKey& key);
// The parameters for what is there of the matrices, and of their biases.
void add_weights(const KernelKey& key, std::vector<Param>& params);
void add_biases(const KernelKey& key, std::vector<Param>& params);
// Arguments of the op: the numbers of rows, then the formats.
void add_matrix_numbers(const KernelKey& key, std::vector<OpArgument>& arguments);
// Bytes of all weights as blocks, and their count.
struct WeightTotals {
  std::int64_t bytes = 0, values = 0;
};
WeightTotals weight_totals(const KernelKey& key);

// What oracles compute with.
double dot_product(std::span<const float> w, const double* x);
double dot_product(std::span<const double> w, const double* x);
double inverse_rms(std::span<const double> x, double epsilon);

// The number by which device code knows a format's tiles; -1 for formats without a decode core.
int tile_number(Format format);
// How many tiles a warp multiplies at once.
inline int tiles_together(const KernelKey& key) {
  return key.paired ? 2 : 1;
}
// Room for the largest tile of the key's matrices, or for two.
int matvec_slot_bytes(const KernelKey& key);
int matvec_shared_bytes(const KernelKey& key);

}  // namespace lathe
