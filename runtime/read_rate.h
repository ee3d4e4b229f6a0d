// Owns the measurement that all bandwidth figures are held against: the rate of a plain read.
#pragma once

#include "lathe/codegen/result.h"
#include "runtime/device_impl.h"
#include "runtime/service_kernel.h"

namespace lathe {

// Reads memory and does nothing else.
class ReadKernel {
 public:
  static constexpr std::int64_t kBlockBytes = 64 << 10;  // that a block reads

  static Result<ReadKernel> load(const DeviceImpl& device);
  // Reads `bytes`, whole blocks, and may write 4 bytes behind them. Wants the context current.
  Result<void> launch(const Driver& driver, CUdeviceptr from, std::int64_t bytes, CUstream stream);

 private:
  explicit ReadKernel(ServiceKernel reader) : reader_(std::move(reader)) {}

  ServiceKernel reader_;
};

// Bytes per second that a kernel reaches which only reads. Takes min(2 GiB, half of the free
// memory) for the time of the call. Wants the context current.
Result<double> measure_read_rate(const DeviceImpl& device, CUstream stream);

}  // namespace lathe
