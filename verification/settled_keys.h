// Owns the choice of keys that every correct computation rounds to the same cache entry.
#pragma once

#include "verification/kernel_case.h"

namespace lathe::verification {

// A key that f32 arithmetic puts near the middle between two entries of a KV cache rounds to one of
// them and, from double precision, to the other: a difference that no bound on the result covers.
// Moves such keys in `arguments`, those of an attend kernel.
void settle_keys(const KernelCase& kernel_case, std::vector<Bytes>& arguments);

}  // namespace lathe::verification
