// Owns a fake driver whose kernels are the device code itself, emulated.
#pragma once

#include "emulation/emulator.h"
#include "emulation/persistent.h"
#include "lathe/runtime/session.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {

inline FakeOptions emulated(int multiprocessors, std::uint64_t seed) {
  FakeOptions options;
  options.multiprocessors = multiprocessors;
  options.run_kernel = [seed](const KernelKey& key, std::span<void* const> arguments) {
    return emulation::emulate(key, arguments, seed);
  };
  options.run_persistent = [seed](const std::string& program, std::span<void* const> arguments) {
    return emulation::emulate_persistent(program, arguments, seed);
  };
  return options;
}

// Of a session whose kernels are worth emulating: the fused ones.
inline SessionOptions emulated_options(ExecutorKind executor) {
  SessionOptions options;
  options.executor = executor;
  options.plan.context = 32;
  options.plan.fusion = Fusion::full;
  options.disk_cache = false;
  return options;
}

}  // namespace lathe::testing
