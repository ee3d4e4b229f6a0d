// Owns kernels on their way while a session's weights go up: they are built on threads of their
// own, and waited for when nothing else is left to do.
#pragma once

#include <atomic>
#include <future>
#include <span>
#include <vector>

#include "codegen/stopwatch.h"
#include "lathe/runtime/session.h"
#include "runtime/executor.h"

namespace lathe {

class KernelsAhead {
 public:
  // Begins, in silence: what fails is told by prepare(). Without another thread nothing is built
  // ahead. `device` and `options` must outlive this.
  KernelsAhead(DeviceImpl& device, std::vector<KernelKey> keys, const SessionOptions& options);
  // Begins no other kernel, and waits for those under way.
  ~KernelsAhead();
  KernelsAhead(const KernelsAhead&) = delete;
  KernelsAhead& operator=(const KernelsAhead&) = delete;

  // Waits for kernels, and builds those that are not among the keys or did not come. Tells the
  // progress and asks whether to go on, as the options want.
  Result<void> prepare(std::span<const KernelKey> keys);
  HaveKernels prepares() {
    return [this](std::span<const KernelKey> keys) { return prepare(keys); };
  }

  // In seconds, after prepare() of all: from the beginning until they were loaded, and of these
  // how long prepare() took.
  double build_seconds() const;
  double wait_seconds() const { return wait_seconds_; }

 private:
  DeviceImpl& device_;
  const SessionOptions& options_;
  const Stopwatch building_;
  std::atomic<bool> wanted_ = true;
  std::shared_future<double> built_;  // in so many seconds
  double loaded_seconds_ = 0;         // until prepare() last had to wait for one
  double wait_seconds_ = 0;
};

}  // namespace lathe
