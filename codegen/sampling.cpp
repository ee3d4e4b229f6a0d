// Owns the checks of sampling rules and their way into the device's form.
#include "lathe/codegen/sampling.h"

#include <fmt/format.h>

namespace lathe {
namespace {

constexpr float kMaxTemperature = 100;
constexpr float kMaxRepeatPenalty = 10;

// False for NaN.
bool within(float value, float low, float high) {
  return value >= low && value <= high;
}

template <typename T>
Error out_of_range(const char* name, const char* range, T value) {
  return {Code::invalid_argument, fmt::format("{} must be {}, but is {}", name, range, value), {}};
}

}  // namespace

Result<void> check_sampling(const Sampling& s) {
  if (!within(s.temperature, 0, kMaxTemperature))
    return out_of_range("temperature", "from 0 to 100", s.temperature);
  if (s.top_k < 0 || s.top_k > kMaxTopK)
    return out_of_range("top-k", "from 1 to 64, or 0 for 64", s.top_k);
  if (!within(s.top_p, 0, 1) || s.top_p == 0)
    return out_of_range("top-p", "above 0 and at most 1 (no limit)", s.top_p);
  if (!within(s.min_p, 0, 1)) return out_of_range("min-p", "from 0 (no limit) to 1", s.min_p);
  if (!within(s.repeat_penalty, 0, kMaxRepeatPenalty) || s.repeat_penalty == 0)
    return out_of_range("repeat penalty", "above 0 and at most 10 (1 for none)", s.repeat_penalty);
  if (s.repeat_last < 0 || s.repeat_last > kMaxRepeatLast)
    return out_of_range("repeat window", "from 0 to 256 tokens", s.repeat_last);
  return {};
}

SamplingState sampling_state(const Sampling& s) {
  return {.seed_low = static_cast<std::uint32_t>(s.seed),
          .seed_high = static_cast<std::uint32_t>(s.seed >> 32),
          .temperature = s.temperature,
          .top_k = s.top_k > 0 ? s.top_k : kMaxTopK,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .repeat_penalty = s.repeat_penalty,
          .repeat_last = s.repeat_last};
}

}  // namespace lathe
