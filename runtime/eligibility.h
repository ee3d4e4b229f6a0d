// Owns what can be taken where: which device runs fused kernels, and which failure of one executor
// leaves another to try.
#pragma once

#include <string>

#include "lathe/codegen/result.h"
#include "runtime/device_impl.h"

namespace lathe {

// Empty where the device can run the kernels of Fusion::full, else what it lacks.
Result<std::string> why_not_fused(const DeviceImpl& device);

// Whether what a persistent kernel met concerns nothing but itself.
bool another_executor_may_do(const Error& error);

}  // namespace lathe
