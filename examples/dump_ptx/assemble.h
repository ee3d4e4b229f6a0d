// Owns the run of ptxas over a kernel's PTX, and what it says of the result.
#pragma once

#include <cstdint>
#include <string>

#include "lathe/library.h"

namespace lathe::dump_ptx {

struct Resources {
  int registers = 0;            // per thread
  int stack_bytes = 0;          // per thread
  int spill_store_bytes = 0;    // per thread
  int spill_load_bytes = 0;     // per thread
  int shared_bytes = 0;         // static, per block
  std::int64_t code_bytes = 0;  // machine code of the kernel
  double milliseconds = 0;
};

// The given assembler, or the first of: the one the build found, the CUDA toolkit's, ptxas on PATH.
Result<std::string> find_ptxas(const std::string& wanted);

Result<Resources> assemble(const Ptx& ptx, const std::string& ptxas);

}  // namespace lathe::dump_ptx
