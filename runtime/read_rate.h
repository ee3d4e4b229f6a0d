// Owns the measurement that all bandwidth figures are held against: the rate of a plain read.
#pragma once

#include "lathe/codegen/result.h"
#include "runtime/device_impl.h"

namespace lathe {

// Bytes per second that a kernel reaches which only reads. Takes min(2 GiB, half of the free
// memory) for the time of the call. Wants the context current.
Result<double> measure_read_rate(const DeviceImpl& device, CUstream stream);

}  // namespace lathe
