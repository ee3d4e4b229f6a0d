// Owns the one list of kernels that tests run: the shapes per kernel type and format.
//
// The emulation tests, the GPU tests and the assembler tests all take their kernels from here, and
// the contents of arguments and what counts as agreement from verification/.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "verification/comparison.h"
#include "verification/kernel_case.h"

namespace lathe {

// How GoogleTest shows a parameter, and ctest the name of its test.
inline void PrintTo(const FormatRow& format, std::ostream* out) {
  *out << format.name;
}

namespace testing {

using namespace verification;

// One test per family.
struct Family {
  KernelType type;
  Format format;
  std::string name() const;  // "gemv_q4_k"

  friend void PrintTo(const Family& family, std::ostream* out) { *out << family.name(); }
};

// Every kernel type with every format that it covers.
const std::vector<Family>& families();
std::vector<KernelCase> kernel_cases(const Family& family);
// Few keys that differ most in the code they make, for tests that compile each.
std::vector<KernelKey> representative_keys(const Family& family);

}  // namespace testing
}  // namespace lathe
