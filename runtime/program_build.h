// Owns a persistent kernel on its way. Of all kernels it takes longest to build, so a session
// starts it first, on a thread of its own, and waits for it when it has nothing else to do.
#pragma once

#include <future>
#include <vector>

#include "lathe/plan/plan.h"
#include "runtime/service_kernel.h"

namespace lathe {

// The keys of the steps that a persistent kernel takes, the plan's first ones.
std::vector<KernelKey> persistent_keys(const Plan& plan);

class ProgramBuild {
 public:
  // Begins. Without another thread the kernel is built by take(). `device` must outlive this; the
  // end of this waits for the build.
  ProgramBuild(const DeviceImpl& device, const Plan& plan);

  // Of the plan's steps, or why there can be none.
  const Result<Program>& program() const { return program_; }
  // Waits for the kernel of program(), which must be there, and hands it out, once. Wants the
  // context current.
  Result<ServiceKernel> take();

  // After take(), in seconds: from the beginning until the kernel was loaded, and the wait for it.
  double build_seconds() const { return build_seconds_; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Built {
    Result<ServiceKernel> kernel;
    double seconds;
  };

  Result<Program> program_;
  std::future<Built> built_;
  double build_seconds_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace lathe
