// Owns the timing of one kernel: arguments in device memory, and launches on cold ones.
#pragma once

#include <vector>

#include "lathe/library.h"
#include "verification/kernel_case.h"

namespace lathe::bench::kernels {

struct Repetitions {
  int count = 15;
  int launches = 20;  // in a row, of each
};

// Arguments of one kernel. Weights and KV caches are there as often as it takes for three times the
// L2 cache to pass before one of them is read again; what the kernels before have just written is
// there once, as it is in the cache when a model decodes.
class Arguments {
 public:
  // In memory of the bench, until its clear().
  static Result<Arguments> make(Workbench& bench, const verification::KernelCase& kernel_case,
                                int launches);

  const std::vector<std::vector<std::uint64_t>>& turns() const { return turns_; }
  // As many as wanted, or fewer where memory is too small for as many turns.
  int launches() const { return launches_; }

 private:
  std::vector<std::vector<std::uint64_t>> turns_;
  int launches_ = 0;
};

// Seconds of a launch, by repetition; a first one is not counted.
Result<std::vector<double>> measure(Workbench& bench, const Kernel& kernel,
                                    const verification::KernelCase& kernel_case,
                                    const Repetitions& repetitions);

}  // namespace lathe::bench::kernels
