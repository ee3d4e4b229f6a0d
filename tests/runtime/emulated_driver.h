// Owns a fake driver whose kernels are the device code itself, emulated.
#pragma once

#include "emulation/emulator.h"
#include "emulation/persistent.h"
#include "lathe/runtime/batch.h"
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

inline BatchOptions emulated_batch_options(Format kv) {
  BatchOptions options;
  options.session.executor = ExecutorKind::graph;
  options.session.disk_cache = false;
  options.session.plan.context = 64;
  options.session.plan.chunk = 16;
  options.session.plan.kv = kv;
  options.sequences = 3;
  options.rows = 24;
  return options;
}

}  // namespace lathe::testing
