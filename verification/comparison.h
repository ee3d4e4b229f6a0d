// Owns the comparison of a kernel's outputs with those of its oracle.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "verification/kernel_case.h"

namespace lathe::verification {

// The oracle's outputs for these arguments, in place of them: on so many threads, or on this one in
// three parts, to test the shares.
void run_oracle(const KernelCase& kernel_case, std::vector<Bytes>& arguments, int threads = 1);

// Gathers the outputs of all draws of a case, then says whether they agree.
class Comparison {
 public:
  explicit Comparison(const KernelCase& kernel_case) : case_(kernel_case) {}

  // Adds the output parameters of one draw.
  void add(std::span<const Bytes> expected, std::span<const Bytes> actual);
  // Empty, or what is wrong: the first element with another bit pattern (bound 0), an element that
  // was not written, or a relative L2 error above the row's bound.
  std::string problem() const;
  double worst_error() const;

 private:
  struct Sum {
    const char* what;
    double error = 0, norm = 0;
  };
  void add_appended(const Bytes& expected, const Bytes& actual);
  bool add_attended(const Param& param, const Bytes& expected, const Bytes& actual);
  void add_half(float expected, float actual, std::size_t at);
  void add_value(std::size_t sum, double expected, double actual, std::size_t at);

  KernelCase case_;
  std::vector<Sum> sums_ = {{"values"}, {"maxima"}, {"sums of weights"}, {"cache"}, {"operands"}};
  std::string first_problem_;
};

}  // namespace lathe::verification
