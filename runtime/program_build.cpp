// Owns the thread that builds a persistent kernel.
#include "runtime/program_build.h"

#include <system_error>

#include "codegen/stopwatch.h"

namespace lathe {
namespace {

Result<ServiceKernel> build(const DeviceImpl& device, const Program& program) {
  LATHE_ASSIGN(ContextScope scope, device.context().enter());
  return load_program(device, program);
}

}  // namespace

std::vector<KernelKey> persistent_keys(const Plan& plan) {
  std::vector<KernelKey> keys;
  for (const Step& step : plan.steps) keys.push_back(step.key);
  keys.resize(persistent_steps(keys).size());
  return keys;
}

ProgramBuild::ProgramBuild(const DeviceImpl& device, const Plan& plan)
    : program_(make_program(persistent_keys(plan))) {
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
