// Owns everything a plan keeps on the device: weights and tables in one pool, KV cache, scratch
// arena and control block, and their addresses.
#pragma once

#include <memory>

#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"
#include "lathe/runtime/session.h"
#include "runtime/binding.h"
#include "runtime/device_memory.h"

namespace lathe {

class BoundWeights {
 public:
  // Allocates the pools and uploads the weights from the file's map. Wants the context current.
  // Out of memory: the error says what is needed, what is free, and the context that would fit.
  static Result<BoundWeights> upload(const Context& context, CUstream stream, const GgufFile& file,
                                     const Plan& plan, const Progress& progress);

  const Addresses& addresses() const { return addresses_; }

 private:
  DeviceBuffer weights_;
  DeviceBuffer kv_;
  DeviceBuffer scratch_;  // the arena, then the control block
  Addresses addresses_;
};

}  // namespace lathe
