// Owns the eager executor: one launch per step, and the device's clock between them if wanted.
#include <fmt/format.h>

#include "runtime/device_memory.h"
#include "runtime/executor.h"
#include "runtime/trace_range.h"

namespace lathe {
namespace {

class EagerExecutor final : public Executor {
 public:
  // `clocks`: none, or one more than there are steps.
  EagerExecutor(const Context& context, std::vector<PreparedStep> steps, std::vector<Event> clocks)
      : driver_(context.driver()), steps_(std::move(steps)), clocks_(std::move(clocks)) {}

  Result<void> launch(CUstream stream, int tokens) override {
    for (int i = 0; i < tokens; ++i) LATHE_TRY(launch(stream));
    return {};
  }

  Result<void> record(CUstream stream) override { return launch(stream); }

  std::string text() const override {
    return fmt::format("{} launches, {} to {}", steps_.size(), steps_.front().kernel->info.name,
                       steps_.back().kernel->info.name);
  }

  Result<std::vector<double>> times() override {
    std::vector<double> microseconds;
    for (std::size_t i = 0; i + 1 < clocks_.size(); ++i) {
      float milliseconds = 0;
      LATHE_DRIVER_CALL(driver_, cuEventElapsedTime, &milliseconds, clocks_[i].get(),
                        clocks_[i + 1].get());
      microseconds.push_back(1e3 * double(milliseconds));
    }
    return microseconds;
  }

 private:
  Result<void> launch(CUstream stream) {
    LATHE_TRY(look_at_clock(0, stream));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const PreparedStep& step = steps_[i];
      const TraceRange range(step.kernel->info.name.c_str());
      const CUresult status = launch_kernel(driver_, *step.kernel, step.parameters, stream);
      if (status != CUDA_SUCCESS) {
        return driver_error(driver_, status, "cuLaunchKernel")
            .with("key", step.kernel->info.key.text());
      }
      LATHE_TRY(look_at_clock(i + 1, stream));
    }
    return {};
  }

  Result<void> look_at_clock(std::size_t i, CUstream stream) {
    if (clocks_.empty()) return {};
    return lathe::check(driver_, driver_.cuEventRecord(clocks_[i].get(), stream), "cuEventRecord");
  }

  const Driver& driver_;
  const std::vector<PreparedStep> steps_;
  const std::vector<Event> clocks_;
};

}  // namespace

std::unique_ptr<Executor> eager_executor(const Context& context, std::vector<PreparedStep> steps) {
  return std::make_unique<EagerExecutor>(context, std::move(steps), std::vector<Event>());
}

Result<std::unique_ptr<Executor>> timed_executor(const Context& context,
                                                 std::vector<PreparedStep> steps) {
  std::vector<Event> clocks;
  while (clocks.size() <= steps.size()) {
    LATHE_ASSIGN(Event clock, create_event(context, CU_EVENT_DEFAULT));
    clocks.push_back(std::move(clock));
  }
  return std::unique_ptr<Executor>(
      std::make_unique<EagerExecutor>(context, std::move(steps), std::move(clocks)));
}

}  // namespace lathe
