// Owns the lists of host benchmarks, each registered by the file that has it.
#pragma once

#include "lathe/library.h"

namespace lathe::bench::host {

// Keys that differ most in what they ask of a route: a text template's, and the largest fused one.
inline constexpr const char* kKeys[] = {"gemv.q4_k.k4096.n14336.w4",
                                        "matvec.q4_k.k4096.n4096.w8.bl132.st8.res"};

void register_key_benchmarks();
// Of the routes that can run here. The compilers outlive the benchmarks.
void register_emission_benchmarks(const Compilers& compilers);
// Without a GPU they say so and are skipped.
void register_device_benchmarks(const CompilerPaths& paths);

}  // namespace lathe::bench::host
