#include "runtime/eligibility.h"

#include <fmt/format.h>

#include "codegen/kernels/matvec.h"
#include "lathe/codegen/kernel_table.h"

namespace lathe {

Result<std::string> why_not_fused(const DeviceImpl& device) {
  std::string lacks;
  if (device.target().compute < row(KernelType::matvec).min_compute) {
    lacks = fmt::format("{} has no {}", device.target().name(),
                        row(KernelType::matvec).min_compute_reason);
  } else {
    LATHE_ASSIGN(const int bytes,
                 device.context().attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    if (bytes < kMostSharedBytes)
      lacks = fmt::format("a block of {} has {} bytes of shared memory, and they use {}",
                          device.target().name(), bytes, kMostSharedBytes);
  }
  if (lacks.empty()) return lacks;
  return "a kernel for each operation, not five a layer: " + lacks;
}

bool another_executor_may_do(const Error& error) {
  return error.code == Code::not_eligible || error.code == Code::not_found ||
         error.code == Code::compile || error.code == Code::unsupported;
}

}  // namespace lathe
