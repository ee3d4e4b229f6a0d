// Owns running a plan on host memory through the kernels' oracles, one step after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lathe/plan/plan.h"

namespace lathe::testing {

class PlanInterpreter {
 public:
  PlanInterpreter(const Plan& plan, const GgufFile& file);

  // Decodes one token at the next position. The arena is filled with NaN before, so that reading
  // what the token has not written shows in the logits.
  std::span<const float> step(std::int32_t token);
  // Reads tokens at the next positions, at most a chunk of them.
  void read(const PrefillPlan& prefill, std::span<const std::int32_t> tokens);
  std::int32_t sampled() const { return control_.sampled; }
  void set_sampling(const Sampling& sampling) { control_.sampling = sampling_state(sampling); }

 private:
  void* address(const Operand& operand);
  void run(const Plan& plan);

  const Plan& plan_;
  std::vector<std::vector<std::byte>> weights_;
  std::vector<std::vector<float>> tables_;
  std::vector<float> arena_;
  std::vector<std::vector<std::byte>> k_;
  std::vector<std::vector<std::byte>> v_;
  std::vector<std::int32_t> counters_;
  ControlBlock control_;
  int position_ = 0;
};

}  // namespace lathe::testing
