// Owns the two ways to put a plan's launches on a stream.
#pragma once

#include <memory>
#include <vector>

#include "runtime/binding.h"
#include "runtime/device_impl.h"

namespace lathe {

// The launches of one token, with their arguments in place.
struct PreparedStep {
  const Kernel* kernel;
  void** parameters;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Puts all launches of one token on the stream. Allocates nothing and does not wait. Wants the
  // context current.
  virtual Result<void> launch(CUstream stream) = 0;
};

// One launch per step. The steps' parameters must outlive the executor.
std::unique_ptr<Executor> eager_executor(const Context& context, std::vector<PreparedStep> steps);
// The same launches recorded once, replayed as one. dependencies[i] are the steps that step i waits
// for (step_dependencies); steps that need not wait for each other run at the same time.
Result<std::unique_ptr<Executor>> graph_executor(const Context& context,
                                                 const std::vector<PreparedStep>& steps,
                                                 const std::vector<std::vector<int>>& dependencies,
                                                 CUstream stream);

}  // namespace lathe
