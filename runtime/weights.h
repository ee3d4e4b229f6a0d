// Owns everything a plan keeps on the device: weights and tables in one pool, KV cache, scratch
// arena and control block, and their addresses.
#pragma once

#include <memory>

#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"
#include "lathe/runtime/session.h"
#include "runtime/binding.h"
#include "runtime/device_impl.h"
#include "runtime/device_memory.h"

namespace lathe {

class BoundWeights {
 public:
  // Allocates the pools and uploads the weights from the file's map; those that the plan wants in
  // tiles are brought into that order on the device. Of the options: device_weights,
  // progress, cancelled. Wants the context current.
  // Out of memory: the error says what is needed, what is free, and the context that would fit.
  static Result<BoundWeights> upload(DeviceImpl& device, CUstream stream, const GgufFile& file,
                                     const Plan& plan, const SessionOptions& options);
  // The kernels that upload() needs.
  static std::vector<KernelKey> keys(const Plan& plan);

  const Addresses& addresses() const { return addresses_; }
  // Of the weights that are read in place.
  std::int64_t borrowed_bytes() const { return borrowed_bytes_; }

 private:
  DeviceBuffer weights_;
  DeviceBuffer kv_;
  DeviceBuffer scratch_;  // the arena, the control block, the table of pages, the counters
  Addresses addresses_;
  std::int64_t borrowed_bytes_ = 0;
};

}  // namespace lathe
