// Owns one run of a kernel between guard pages: on the host, by the emulator among others, and by a
// GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lathe/codegen/emit.h"
#include "tests/codegen/kernel_cases.h"
#include "tests/support/guarded_buffer.h"

namespace lathe::testing {

class Gpu;

// What runs a kernel, on pointers in the order of its parameters.
using HostLaunch = std::function<Result<void>(std::span<void* const>)>;

// Runs the kernel once on such arguments, each between guard pages, and returns them as they are
// after it. An error where it could not run, wrote beside an argument or changed an input.
Result<std::vector<Bytes>> host_run(const KernelCase& kernel_case, const std::vector<Bytes>& before,
                                    Placement placement, const HostLaunch& launch);

// The same by the emulator.
Result<std::vector<Bytes>> emulated_run(const KernelCase& kernel_case,
                                        const std::vector<Bytes>& before, Placement placement,
                                        std::uint64_t seed);

// The same on a GPU, of PTX or a cubin with this entry point. Of gpu_runs.cpp.
Result<std::vector<Bytes>> gpu_run(Gpu& gpu, const KernelCase& kernel_case,
                                   const std::string& image, const std::vector<Bytes>& before,
                                   Placement placement);

// Whether the key's PTX template takes its sums in the order of the device function, so that the
// two give the same bits.
bool template_sums_in_order(const KernelKey& key);

// An error that names the first input that is not what it was.
Result<void> inputs_unchanged(const KernelCase& kernel_case, const std::vector<Bytes>& before,
                              const std::vector<Bytes>& after);

}  // namespace lathe::testing
