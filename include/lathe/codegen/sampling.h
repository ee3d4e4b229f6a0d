// Owns how the next token is chosen from the logits: the rules as a caller states them, and their
// form in device memory, where the kernels top_k and sample read them.
#pragma once

#include <array>
#include <cstdint>

#include "lathe/codegen/result.h"

namespace lathe {

inline constexpr int kMaxTopK = 64;
inline constexpr int kMaxRepeatLast = 256;

// Applied in the order of the fields below temperature: repeat penalty, top-k, top-p, min-p, then
// a draw at the temperature. The defaults take the greatest logit (docs/sampling.md).
struct Sampling {
  float temperature = 0;     // 0 takes the likeliest token; up to 100
  int top_k = 0;             // keep the k likeliest, 1 to 64; 0 = 64
  float top_p = 1;           // keep the likeliest that together reach this probability
  float min_p = 0;           // keep those at least this likely relative to the likeliest
  float repeat_penalty = 1;  // above 1 makes recent tokens less likely; up to 10
  int repeat_last = 64;      // how many tokens are recent, up to 256; 0 turns the penalty off
  std::uint64_t seed = 0;    // with the position, all that the draw depends on beside the logits
};

// Ok, or a sentence that names the first value that makes no sense.
Result<void> check_sampling(const Sampling& sampling);

// Every value can change between two tokens, so none of it is part of a kernel's key.
struct SamplingState {
  std::uint32_t seed_low = 0;
  std::uint32_t seed_high = 0;
  float temperature = 0;
  std::int32_t top_k = kMaxTopK;
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1;
  std::int32_t repeat_last = 0;
  // Tokens of the positions before this one, that of position p at p % kMaxRepeatLast.
  std::array<std::int32_t, kMaxRepeatLast> recent = {};
};

// The rules as a state without recent tokens. They must have passed check_sampling().
SamplingState sampling_state(const Sampling& sampling);

}  // namespace lathe
