// Owns the verification of one kernel: fresh inputs, its oracle, a launch by whoever asks, the
// verdict.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verification/kernel_case.h"

namespace lathe::verification {

// Runs the kernel once on arguments as it takes them, and returns all of them as it left them.
using Launch = std::function<Result<std::vector<Bytes>>(const std::vector<Bytes>& arguments)>;

struct Verdict {
  double error = 0;     // the greatest relative L2 error; 0 where bits are compared
  std::string problem;  // empty: within the row's bound, and no input was changed
};

// As many launches as one comparison takes. The oracle runs on all cores.
Result<Verdict> verify(const KernelCase& kernel_case, std::uint64_t seed, const Launch& launch);

}  // namespace lathe::verification
