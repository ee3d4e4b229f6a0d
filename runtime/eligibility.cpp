#include "runtime/eligibility.h"

#include <fmt/format.h>

#include "codegen/kernels/matvec.h"
#include "lathe/codegen/kernel_table.h"
#include "runtime/session_base.h"
#include "runtime/weights.h"

namespace lathe {
namespace {

constexpr const char* kNotFused = "a kernel for each operation, not five a layer: ";

}  // namespace

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
  return kNotFused + lacks;
}

Result<Plan> choose_plan(const DeviceImpl& device, const GgufFile& file, PlanOptions options) {
  const bool automatic = options.fusion == Fusion::automatic;
  std::string note;
  if (automatic) {
    LATHE_ASSIGN(note, why_not_fused(device));
    if (!note.empty()) options.fusion = Fusion::none;
  }
  LATHE_ASSIGN(options.blocks,
               device.context().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  LATHE_ASSIGN(Plan plan, build_session_plan(file, options));
  if (automatic && plan.options.fusion == Fusion::full) {
    Result<void> covered = device.kernels().check_covered(plan.distinct_keys());
    if (covered) covered = device.kernels().check_covered(BoundWeights::keys(plan));
    if (!covered) {
      note = kNotFused + covered.error().message;
      options.fusion = Fusion::none;
      LATHE_ASSIGN(plan, build_session_plan(file, options));
    }
  }
  if (!note.empty()) plan.notes.push_back(note);
  return plan;
}

bool another_executor_may_do(const Error& error) {
  return error.code == Code::not_eligible || error.code == Code::not_found ||
         error.code == Code::compile || error.code == Code::unsupported;
}

}  // namespace lathe
