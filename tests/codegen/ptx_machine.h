// Owns the running of PTX text on the host, so that hand-written kernels are proven where there is
// no GPU.
//
// A warp goes together: of its lanes those at the earliest instruction take it. So lanes meet where
// their ways join, and a shuffle that not all lanes reach is an error, as are a barrier that some
// threads have left, an address that is not aligned, and shared memory beyond what the launch has.
// Global addresses are host pointers. Shared memory and registers begin as NaN.
#pragma once

#include <span>

#include "lathe/codegen/emit.h"

namespace lathe::testing {

// In which order the warps of a block and the blocks of a grid come.
enum class WarpOrder { rising, falling };

Result<void> run_ptx(const Ptx& ptx, std::span<void* const> arguments, WarpOrder order);

}  // namespace lathe::testing
