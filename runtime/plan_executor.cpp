// Owns the way from a bound plan to an executor of its steps.
#include "runtime/executor.h"

namespace lathe {

Result<std::vector<PreparedStep>> prepared_steps(DeviceImpl& device, const Plan& plan,
                                                 BoundPlan& bound, std::size_t first) {
  std::vector<PreparedStep> steps;
  for (std::size_t i = first; i < plan.steps.size(); ++i) {
    LATHE_ASSIGN(const Kernel* kernel, device.kernel(plan.steps[i].key));
    steps.push_back({kernel, bound.parameters(i)});
  }
  return steps;
}

Result<std::unique_ptr<Executor>> plan_executor(DeviceImpl& device, const Plan& plan,
                                                BoundPlan& bound, ExecutorKind kind,
                                                CUstream stream) {
  LATHE_ASSIGN(std::vector<PreparedStep> steps, prepared_steps(device, plan, bound));
  if (kind == ExecutorKind::eager) return eager_executor(device.context(), std::move(steps));
  return graph_executor(device.context(), steps, step_dependencies(plan), stream);
}

}  // namespace lathe
