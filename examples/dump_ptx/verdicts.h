// Owns what --verify does: each kernel run against its oracle, a line for each, and their count.
#pragma once

#include <span>

#include "examples/dump_ptx/options.h"

namespace lathe::dump_ptx {

// The verdicts go to stdout. The exit code is 1 when a kernel is beyond its bound or could not be
// run. Among several kernels, one that no asked-for route or not the GPU covers is skipped, and so
// is one that would take minutes to emulate.
int verify(std::span<const KernelKey> keys, const Options& options);

}  // namespace lathe::dump_ptx
