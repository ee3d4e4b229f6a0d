// Owns the three ways to put a plan's launches on a stream.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lathe/runtime/session.h"
#include "runtime/binding.h"
#include "runtime/device_impl.h"
#include "runtime/program_build.h"
#include "runtime/session_choices.h"

namespace lathe {

// How a session comes by kernels, or would: an error where one cannot be had.
using HaveKernels = std::function<Result<void>(std::span<const KernelKey>)>;

// The launches of one token, with their arguments in place.
struct PreparedStep {
  const Kernel* kernel;
  void** parameters;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Puts all launches of `tokens` tokens on the stream, each the one that the one before chose.
  // Allocates nothing and does not wait. Wants the context current.
  virtual Result<void> launch(CUstream stream, int tokens) = 0;
  // Puts the launches of one token on a stream that is being captured into a graph of the caller's.
  // They choose by the rules that hold when they are replayed.
  virtual Result<void> record(CUstream stream) = 0;
  // Ok, or why what was launched so far is no result. After the stream has been waited for.
  virtual Result<void> check() { return {}; }
  // That check() copies to the host.
  virtual std::int64_t checked_bytes() const { return 0; }
  // What one token's launches are, for an error.
  virtual std::string text() const = 0;
  // Microseconds that each launch of the last token took by the device's clock, or none where they
  // are not kept. After the stream has been waited for.
  virtual Result<std::vector<double>> times() { return std::vector<double>(); }
  // False: the next token is drawn, by the plan's kernels for it, and not the likeliest.
  virtual void set_greedy(bool) {}
};

// The steps that no other step waits for.
std::vector<int> unawaited(const std::vector<std::vector<int>>& dependencies);

// One launch per step. The steps' parameters must outlive the executor.
std::unique_ptr<Executor> eager_executor(const Context& context, std::vector<PreparedStep> steps);
// The same, with a look at the device's clock after each.
Result<std::unique_ptr<Executor>> timed_executor(const Context& context,
                                                 std::vector<PreparedStep> steps);
// One persistent kernel for the steps up to the last matrix-vector product; `tail` are the launches
// after it, which draw a token and end it. Waits for the kernel's build.
Result<std::unique_ptr<Executor>> mega_executor(DeviceImpl& device, const Plan& plan,
                                                BoundPlan& bound, ProgramBuild& build,
                                                const Addresses& addresses, CUdeviceptr history,
                                                std::vector<PreparedStep> tail, CUstream stream);
// Each step of a plan from `first` on with its kernel, which has been prepared, and its arguments.
Result<std::vector<PreparedStep>> prepared_steps(DeviceImpl& device, const Plan& plan,
                                                 BoundPlan& bound, std::size_t first = 0);
// Eager, or else a graph, of a plan's steps alone.
Result<std::unique_ptr<Executor>> plan_executor(DeviceImpl& device, const Plan& plan,
                                                BoundPlan& bound, ExecutorKind kind,
                                                CUstream stream);
struct SessionExecutor {
  std::unique_ptr<Executor> executor;
  ExecutorKind kind = ExecutorKind::graph;  // which it is, where that was left open
  int submissions = 0;                      // calls of the driver for a token, the likeliest
  std::string note;                         // why it is another than it might have been, if it is
};
// The kernels that an executor of a session launches, but for the persistent one.
std::vector<KernelKey> launched_keys(const Plan& plan, ExecutorKind kind);
// `end` is the step that ends a token; `persistent` is there where mega is chosen. The kernels of
// the choice have been prepared, and where another is taken, `have` prepares that one's.
Result<SessionExecutor> session_executor(DeviceImpl& device, const Plan& plan, BoundPlan& bound,
                                         ProgramBuild* persistent, const Addresses& addresses,
                                         CUdeviceptr history, const PreparedStep& end,
                                         const ExecutorChoice& choice, bool time_steps,
                                         const HaveKernels& have, CUstream stream);
// The same launches recorded once, replayed as one. dependencies[i] are the steps that step i waits
// for (step_dependencies); steps that need not wait for each other run at the same time.
Result<std::unique_ptr<Executor>> graph_executor(const Context& context,
                                                 const std::vector<PreparedStep>& steps,
                                                 const std::vector<std::vector<int>>& dependencies,
                                                 CUstream stream);

}  // namespace lathe
