// Owns what can be taken where: which plan a device and its routes can run, and which failure of
// one executor leaves another to try.
#pragma once

#include <string>

#include "lathe/codegen/result.h"
#include "lathe/plan/plan.h"
#include "runtime/device_impl.h"

namespace lathe {

// Empty where the device can run the kernels of Fusion::full, else what it lacks.
Result<std::string> why_not_fused(const DeviceImpl& device);

// The plan of a session on this device. Fusion::automatic takes the fused one where the device can
// run it and the device's routes make every kernel of it, else the other, with a note that says
// why. Builds no kernel.
Result<Plan> choose_plan(const DeviceImpl& device, const GgufFile& file, PlanOptions options);

// Whether what a persistent kernel met concerns nothing but itself.
bool another_executor_may_do(const Error& error);

}  // namespace lathe
