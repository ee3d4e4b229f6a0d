// Owns the joining of two PTX texts into one: a kernel's, and that of a function which it calls.
#pragma once

#include <string>

#include "lathe/codegen/result.h"

namespace lathe {

// `kernel` with what it declares as `.extern .func` and `functions` defines: those definitions
// and whatever else `functions` has beside its entries, such as tables; what both have comes once.
// Both are as NVRTC writes them, for the same target. The result is what NVRTC writes of one source
// with the same functions not inlined. Code::compile where a function has no definition, or both
// define a name differently.
Result<std::string> joined_ptx(const std::string& kernel, const std::string& functions);

}  // namespace lathe
