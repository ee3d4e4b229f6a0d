// Owns the making and writing of the kernels that were asked for.
#pragma once

#include <span>

#include "examples/dump_ptx/options.h"

namespace lathe::dump_ptx {

// Says on stderr how each went. A kernel that no asked-for route or not the target covers is
// skipped, unless nothing else is left; any other failure makes the exit code 1, after all kernels
// have had their turn.
int dump(std::span<const KernelKey> keys, const Options& options, const Compilers& compilers);

// The same for a persistent kernel.
int dump(const Program& program, const Options& options, const Compilers& compilers);

}  // namespace lathe::dump_ptx
