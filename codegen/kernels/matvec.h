// Owns the sizes of matvec kernels that plans and persistent kernels also want.
#pragma once

#include <array>

#include "lathe/codegen/kernel_key.h"

namespace lathe {

// Of a block, on sm_90 and sm_100; sm_120 has less, and takes no fused plan by itself.
inline constexpr int kMostSharedBytes = 227 * 1024;

// The matrices of a matvec key; those with n 0 are not there.
struct MatrixOfKey {
  Format format;
  int n;
};
inline std::array<MatrixOfKey, 3> matrices(const KernelKey& key) {
  return {{{key.format, key.n}, {key.format_b, key.n_b}, {key.format_c, key.n_c}}};
}

// The number by which device code knows a format's tiles; -1 for formats without a decode core.
int tile_number(Format format);
// The largest tile of the key's matrices.
int matvec_slot_bytes(const KernelKey& key);
int matvec_shared_bytes(const KernelKey& key);

}  // namespace lathe
