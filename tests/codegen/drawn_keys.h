// Owns keys drawn at random from the whole space: about half are kernels, the rest must be refused.
#pragma once

#include <string>

#include "lathe/codegen/kernel_key.h"
#include "verification/random.h"

namespace lathe::testing {

// A kernel that tests run, of any family, with one to four fields changed to values of any size.
KernelKey drawn_key(verification::Random& random);

// Draws the value of a field whose values have names: no number and no flag.
void draw_name(KernelKey& key, const KeyField& field, verification::Random& random);

// Gives the field another value than it has by default.
void set_another(KernelKey& key, const KeyField& field);

// Empty, or what is wrong with what the table says of a key: a refusal without a reason, a kernel
// that no device could launch, parameters of no size, names that do not read back.
std::string table_faults(const KernelKey& key);

}  // namespace lathe::testing
