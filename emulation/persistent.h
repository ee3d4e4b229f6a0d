// Owns the emulation of a persistent kernel: its program on the host, all blocks at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lathe/codegen/result.h"

namespace lathe::emulation {

// Runs the kernel of the Program whose text() this is. `parameters` are pointers to the values of
// its parameters, as cuLaunchCooperativeKernel takes them. `held_back` as for launch_together().
Result<void> emulate_persistent(const std::string& text, std::span<void* const> parameters,
                                std::uint64_t seed, unsigned held_back = 1);

}  // namespace lathe::emulation
