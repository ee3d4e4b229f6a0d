// Owns which executor a session's steps get.
#include "runtime/eligibility.h"
#include "runtime/executor.h"

namespace lathe {
namespace {

// The first step that `kind` launches by itself: the persistent kernel has those before it.
std::size_t first_launched(const Plan& plan, ExecutorKind kind) {
  return kind == ExecutorKind::mega ? persistent_keys(plan).size() : 0;
}

}  // namespace

std::vector<KernelKey> launched_keys(const Plan& plan, ExecutorKind kind) {
  return plan.distinct_keys(first_launched(plan, kind));
}

Result<SessionExecutor> session_executor(DeviceImpl& device, const Plan& plan, BoundPlan& bound,
                                         ProgramBuild* persistent, const Addresses& addresses,
                                         CUdeviceptr history, const PreparedStep& end,
                                         const ExecutorChoice& choice, bool time_steps,
                                         const HaveKernels& have, CUstream stream) {
  SessionExecutor out;
  out.kind = choice.kind;
  if (out.kind == ExecutorKind::mega) {
    LATHE_ASSIGN(std::vector<PreparedStep> tail,
                 prepared_steps(device, plan, bound, first_launched(plan, out.kind)));
    tail.push_back(end);
    out.submissions = plan.logits.bytes > 0 ? 1 : 1 + int(tail.size());
    auto mega = mega_executor(device, plan, bound, *persistent, addresses, history, std::move(tail),
                              stream);
    if (mega || !choice.may_fall_back() || !another_executor_may_do(mega.error())) {
      LATHE_ASSIGN(out.executor, std::move(mega));
      return out;
    }
    out.note = mega.error().message;
    out.kind = ExecutorKind::graph;
    LATHE_TRY(have(launched_keys(plan, out.kind)));
  }
  LATHE_ASSIGN(std::vector<PreparedStep> steps, prepared_steps(device, plan, bound));
  steps.push_back(end);
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
