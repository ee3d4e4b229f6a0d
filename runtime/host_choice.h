// Owns the choice of a token on the host by the rules of a session or a sequence, among those that
// are allowed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lathe/codegen/sampling.h"
#include "lathe/plan/plan.h"
#include "lathe/runtime/choice.h"

namespace lathe {

// When a token is chosen, and how.
struct ChoicePoint {
  std::int32_t token = 0;     // that was decoded
  std::int32_t position = 0;  // of that token
  SamplingState rules;        // with the tokens before it
};

// By the oracles of the two steps that end a plan, which draw what the kernels draw from the same
// logits, to the bit.
class HostChoice {
 public:
  // Of a plan that decodes one token.
  explicit HostChoice(const Plan& plan);
  // -1: no token is allowed, or the logits of all that are are NaN. `allowed` has passed
  // check_token_set(). Allocates on the first call.
  Result<std::int32_t> choose(std::span<const float> logits, const ChoicePoint& at,
                              TokenSet allowed);

 private:
  const KernelKey top_k_, sample_;
  std::vector<float> logits_;
  std::vector<std::uint64_t> lists_;
};

}  // namespace lathe
