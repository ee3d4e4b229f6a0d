// Owns what the text of a kernel must be that begins before those that it follows have ended.
#pragma once

#include <string>
#include <string_view>

#include "lathe/codegen/kernel_key.h"

namespace lathe::testing {

// Empty, or how a kernel with KernelKey::early breaks one of these rules, one line each: on no way
// through it does it read what is not constant, write, or end before it waits for the kernels
// before; and it lets those after it begin.
std::string early_faults(std::string_view ptx, const KernelKey& key);

}  // namespace lathe::testing
