// Owns which executor a session's steps get.
#include "lathe/codegen/program.h"
#include "runtime/eligibility.h"
#include "runtime/executor.h"

namespace lathe {
namespace {

// What is launched after the persistent kernel.
std::vector<PreparedStep> tail_of(const Plan& plan, std::vector<PreparedStep> steps) {
  std::vector<KernelKey> keys;
  for (const Step& step : plan.steps) keys.push_back(step.key);
  steps.erase(steps.begin(), steps.begin() + std::ssize(persistent_steps(keys)));
  return steps;
}

}  // namespace

Result<SessionExecutor> session_executor(DeviceImpl& device, const Plan& plan, BoundPlan& bound,
                                         ProgramBuild* persistent, const Addresses& addresses,
                                         CUdeviceptr history, std::vector<PreparedStep> steps,
                                         const ExecutorChoice& choice, bool time_steps,
                                         CUstream stream) {
  SessionExecutor out;
  out.kind = choice.kind;
  if (out.kind == ExecutorKind::mega) {
    std::vector<PreparedStep> tail = tail_of(plan, steps);
    out.submissions = plan.logits.bytes > 0 ? 1 : 1 + int(tail.size());
    auto mega = mega_executor(device, plan, bound, *persistent, addresses, history, std::move(tail),
                              stream);
    if (mega || !choice.may_fall_back() || !another_executor_may_do(mega.error())) {
      LATHE_ASSIGN(out.executor, std::move(mega));
      return out;
    }
    out.note = mega.error().message;
    out.kind = ExecutorKind::graph;
  }
  if (out.kind == ExecutorKind::eager) {
    out.submissions = int(steps.size());
    LATHE_ASSIGN(out.executor, time_steps
                                   ? timed_executor(device.context(), std::move(steps))
                                   : Result(eager_executor(device.context(), std::move(steps))));
    return out;
  }
  std::vector<std::vector<int>> dependencies = step_dependencies(plan);
  dependencies.push_back(unawaited(dependencies));  // of the step that ends the token
  out.submissions = 1;
  LATHE_ASSIGN(out.executor, graph_executor(device.context(), steps, dependencies, stream));
  return out;
}

}  // namespace lathe
