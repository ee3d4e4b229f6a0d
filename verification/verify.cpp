// Owns the order of a verification's parts.
#include "verification/verify.h"

#include <thread>

#include "verification/comparison.h"
#include "verification/random.h"

namespace lathe::verification {
namespace {

// The first input that is no longer what it was, or nothing.
std::string changed_input(const KernelCase& kernel_case, const std::vector<Bytes>& before,
                          const std::vector<Bytes>& after) {
  const std::vector<Param> params = row(kernel_case.key.type).params(kernel_case.key);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].access == Access::read && after[i] != before[i])
      return std::string("the kernel changed its input ") + params[i].name;
  }
  return {};
}

}  // namespace

Result<Verdict> verify(const KernelCase& kernel_case, std::uint64_t seed, const Launch& launch) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Random random(seed);
  Comparison comparison(kernel_case);
  Verdict verdict;
  for (int draw = 0; draw < draws(kernel_case); ++draw) {
    std::vector<Bytes> expected = make_arguments(kernel_case, random.bits());
    const std::vector<Bytes> given = device_arguments(kernel_case, expected);
    run_oracle(kernel_case, expected, threads);
    LATHE_ASSIGN(const std::vector<Bytes> after, launch(given));
    if (verdict.problem.empty()) verdict.problem = changed_input(kernel_case, given, after);
    comparison.add(expected, after);
  }
  verdict.error = comparison.worst_error();
  if (verdict.problem.empty()) verdict.problem = comparison.problem();
  return verdict;
}

}  // namespace lathe::verification
