// Owns the sizes of matvec kernels that plans and persistent kernels also want.
#pragma once

#include "lathe/codegen/kernel_key.h"

namespace lathe {

// Of a block, on sm_90 and sm_100; sm_120 has less, and takes no fused plan by itself.
inline constexpr int kMostSharedBytes = 227 * 1024;

// The number by which device code knows a format's tiles; -1 for formats without a decode core.
int tile_number(Format format);
// The largest tile of the key's matrices.
int matvec_slot_bytes(const KernelKey& key);
int matvec_shared_bytes(const KernelKey& key);

}  // namespace lathe
