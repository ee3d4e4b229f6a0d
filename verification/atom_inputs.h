// Owns the contents of a KV cache of atoms and of its tables.
#pragma once

#include "verification/kernel_case.h"
#include "verification/random.h"

namespace lathe::verification {

// Any atoms with any coefficients in the words of positions `first` to the case's; the first and
// the last atom among them.
void fill_words(Bytes& bytes, Random& random, const KernelCase& kernel_case, int first);

// Atoms about 1 long, some of them there twice, the second time with the other sign; of small whole
// numbers where vectors are (Values::ties).
void fill_atoms(Bytes& bytes, Random& random, const KernelCase& kernel_case);

}  // namespace lathe::verification
