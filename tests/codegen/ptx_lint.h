// Owns the static checks of PTX text that no assembler makes, or makes too late.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/emit.h"

namespace lathe::testing {

// What a launch gives the kernel.
struct PtxLaunch {
  std::vector<int> parameter_bytes;
  unsigned threads = 0;
  unsigned shared_bytes = 0;  // dynamic
};

// Every fault, one line each with the number of its line:
// - names that are not declared, registers that are declared and never named, or read and never
//   written; labels that stand twice or are missing;
// - accesses to another state space than that of the variable or register they name;
// - parameters that are not the launch's in number and size, or blocks of another size;
// - instructions that the stated PTX version or target does not have;
// - loops that end in an unconditional branch, for targets of compute capability 12;
// - shared memory both static and dynamic, or more of it than a block may have.
std::string ptx_faults(std::string_view text, const PtxLaunch& launch);

// The same of a kernel of the table, whose parameters are pointers.
std::string ptx_faults(const Ptx& ptx, const KernelKey& key);

}  // namespace lathe::testing
