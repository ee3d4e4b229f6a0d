// Owns the thread that builds a persistent kernel.
#include "runtime/program_build.h"

#include <system_error>
#include <vector>

#include "codegen/stopwatch.h"

namespace lathe {
namespace {

Result<Program> program_of(const Plan& plan) {
  std::vector<KernelKey> keys;
  for (const Step& step : plan.steps) keys.push_back(step.key);
  return make_program(persistent_steps(keys));
}

Result<ServiceKernel> build(const DeviceImpl& device, const Program& program) {
  LATHE_ASSIGN(ContextScope scope, device.context().enter());
  return load_program(device, program);
}

}  // namespace

ProgramBuild::ProgramBuild(const DeviceImpl& device, const Plan& plan)
    : program_(program_of(plan)) {
  if (!program_) return;
  const auto work = [&device, program = *program_, building = Stopwatch()] {
    Result<ServiceKernel> kernel = build(device, program);
    return Built{std::move(kernel), building.seconds()};
  };
  try {
    built_ = std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    built_ = std::async(std::launch::deferred, work);
  }
}

Result<ServiceKernel> ProgramBuild::take() {
  const Stopwatch waiting;
  Built built = built_.get();
  wait_seconds_ = waiting.seconds();
  build_seconds_ = built.seconds;
  return std::move(built.kernel);
}

}  // namespace lathe
