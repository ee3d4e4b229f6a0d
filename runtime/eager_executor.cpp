// Owns the eager executor: one launch per step.
#include <fmt/format.h>

#include "runtime/executor.h"
#include "runtime/trace_range.h"

namespace lathe {
namespace {

class EagerExecutor final : public Executor {
 public:
  EagerExecutor(const Context& context, std::vector<PreparedStep> steps)
      : driver_(context.driver()), steps_(std::move(steps)) {}

  Result<void> launch(CUstream stream, int tokens) override {
    for (int i = 0; i < tokens; ++i) LATHE_TRY(launch(stream));
    return {};
  }

  Result<void> record(CUstream stream) override { return launch(stream); }

  std::string text() const override {
    return fmt::format("{} launches, {} to {}", steps_.size(), steps_.front().kernel->info.name,
                       steps_.back().kernel->info.name);
  }

 private:
  Result<void> launch(CUstream stream) {
    for (const PreparedStep& step : steps_) {
      const TraceRange range(step.kernel->info.name.c_str());
      const CUresult status = launch_kernel(driver_, *step.kernel, step.parameters, stream);
      if (status != CUDA_SUCCESS) {
        return driver_error(driver_, status, "cuLaunchKernel")
            .with("key", step.kernel->info.key.text());
      }
    }
    return {};
  }

  const Driver& driver_;
  const std::vector<PreparedStep> steps_;
};

}  // namespace

std::unique_ptr<Executor> eager_executor(const Context& context, std::vector<PreparedStep> steps) {
  return std::make_unique<EagerExecutor>(context, std::move(steps));
}

}  // namespace lathe
