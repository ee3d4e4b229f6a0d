// Owns the sampling rules and the random numbers.
#include "examples/decode/text/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe::text {

namespace {

constexpr float max_temperature = 100.0f;
constexpr float max_repeat_penalty = 10.0f;
constexpr int32_t max_repeat_window = 1 << 20;

template <typename T>
std::string out_of_range(const char* name, const char* range, T value) {
  return std::string(name) + " must be " + range + ", but is " + std::to_string(value);
}

bool within(float value, float low, float high) {  // false for NaN
  return value >= low && value <= high;
}

// 1 / k! for the series of the exponential function.
constexpr std::array<double, 14> inverse_factorials = [] {
  std::array<double, 14> values{};
  double factorial = 1.0;
  for (size_t k = 0; k < values.size(); ++k) {
    factorial *= k > 0 ? static_cast<double>(k) : 1.0;
    values[k] = 1.0 / factorial;
  }
  return values;
}();

// e to the power x, for x <= 0. The C library's exp() differs in the last bits between platforms;
// this one uses only operations that IEEE 754 defines to the bit (the build keeps the compiler from
// fusing them), so that a seed gives the same text everywhere. Good to a few units in the last
// place.
double exp_of_negative(double x) {
  if (x < -700.0) {
    return 0.0;
  }
  constexpr double log2_e = 0x1.71547652b82fep+0;
  constexpr double ln2_high = 0x1.62e42fefa0000p-1;  // short enough for an exact product with n
  constexpr double ln2_low = 0x1.cf79abc9e3b39p-40;
  const double n = std::floor(x * log2_e + 0.5);
  const double r = (x - n * ln2_high) - n * ln2_low;  // within ln(2)/2 of 0
  double sum = 0.0;
  for (size_t k = inverse_factorials.size(); k-- > 0;) {
    sum = sum * r + inverse_factorials[k];
  }
  const auto exponent = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023);
  return sum * std::bit_cast<double>(exponent << 52);
}

}  // namespace

std::string check(const SamplerOptions& options) {
  if (!within(options.temperature, 0.0f, max_temperature)) {
    return out_of_range("temperature", "from 0 to 100", options.temperature);
  }
  if (options.top_k < 0) {
    return out_of_range("top-k", "0 (all tokens) or more", options.top_k);
  }
  if (!within(options.top_p, 0.0f, 1.0f) || options.top_p == 0.0f) {
    return out_of_range("top-p", "above 0 and at most 1 (all tokens)", options.top_p);
  }
  if (!within(options.min_p, 0.0f, 1.0f)) {
    return out_of_range("min-p", "from 0 (all tokens) to 1", options.min_p);
  }
  if (!within(options.repeat_penalty, 0.0f, max_repeat_penalty) || options.repeat_penalty == 0.0f) {
    return out_of_range("repeat penalty", "above 0 and at most 10 (1 for none)",
                        options.repeat_penalty);
  }
  if (options.repeat_window < 0 || options.repeat_window > max_repeat_window) {
    return out_of_range("repeat window", "from 0 to 1048576 tokens", options.repeat_window);
  }
  return "";
}

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) {
    seed += 0x9E3779B97F4A7C15;
    uint64_t mixed = seed;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    word = mixed ^ mixed >> 31;
  }
}

uint64_t Random::next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

int32_t argmax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)])) {
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

std::unique_ptr<Sampler> Sampler::create(const SamplerOptions& options, std::string* error) {
  *error = check(options);
  return error->empty() ? std::unique_ptr<Sampler>(new Sampler(options)) : nullptr;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  if (options.repeat_penalty != 1.0f) {
    recent_.assign(static_cast<size_t>(options.repeat_window), -1);
  }
}

void Sampler::accept(int32_t token) {
  if (!recent_.empty()) {
    recent_[recent_next_] = token;
    recent_next_ = (recent_next_ + 1) % recent_.size();
  }
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (options_.temperature == 0.0f && recent_.empty()) {
    return argmax(logits);
  }
  collect(logits);
  if (candidates_.empty()) {
    return -1;
  }
  if (options_.temperature == 0.0f) {
    return best_.id;
  }
  if (std::isinf(best_.logit)) {
    // Probabilities are undefined: all logits are minus infinity, or some are plus infinity. The
    // draw is still made, so that later tokens don't depend on it.
    random_.next();
    return best_.id;
  }
  keep_top_k();
  keep_top_p();
  keep_min_p();
  return draw();
}

float Sampler::penalized(float logit) const {
  // Division pushes a positive logit down but would push a negative one up.
  return logit > 0.0f ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
}

void Sampler::collect(std::span<const float> logits) {
  candidates_.clear();
  candidates_.reserve(logits.size());
  sorted_ = 0;
  if (penalize_.size() < logits.size()) {
    penalize_.resize(logits.size(), false);
  }
  const auto mark_recent = [&](bool value) {
    for (const int32_t token : recent_) {
      if (token >= 0 && static_cast<size_t>(token) < penalize_.size()) {
        penalize_[static_cast<size_t>(token)] = value;
      }
    }
  };
  mark_recent(true);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = penalize_[i] ? penalized(logits[i]) : logits[i];
    if (std::isnan(logit)) {
      continue;
    }
    candidates_.push_back({logit, static_cast<int32_t>(i), 0.0});
    if (candidates_.size() == 1 || logit > best_.logit) {
      best_ = candidates_.back();
    }
  }
  mark_recent(false);
}

// Brings the best `count` candidates to the front, in order. Ids break ties, so they are the same
// with every standard library. The order of the others isn't, so they must not reach the draw.
void Sampler::sort_first(size_t count) {
  count = std::min(count, candidates_.size());
  if (count <= sorted_) {
    return;
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != candidates_.end()) {
    std::nth_element(begin, end, candidates_.end(), better);
  }
  std::sort(begin, end, better);
  sorted_ = count;
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k > 0 && k < candidates_.size()) {
    sort_first(k);
    candidates_.resize(k);
  }
}

// Gives every candidate its weight and returns their sum. The likeliest weighs 1.
double Sampler::weigh(double temperature) {
  const double best = best_.logit;
  double sum = 0.0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = exp_of_negative((candidate.logit - best) / temperature);
    sum += candidate.weight;
  }
  return sum;
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0f) {
    return;
  }
  const double enough = weigh(1.0) * options_.top_p;
  double reached = 0.0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || reached < enough)) {
    if (kept == sorted_) {
      // Few tokens hold most of the probability, so sorting all of them is seldom needed.
      sort_first(std::max<size_t>(64, 2 * kept));
    }
    reached += candidates_[kept++].weight;
  }
  candidates_.resize(kept);
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0.0f) {
    return;
  }
  weigh(1.0);
  const auto unlikely = [&](const Candidate& candidate) {
    return candidate.weight < options_.min_p;
  };
  candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), unlikely),
                    candidates_.end());
}

int32_t Sampler::draw() {
  double left = weigh(options_.temperature) * random_.next_unit();
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0.0) {
      return candidate.id;
    }
  }
  return best_.id;  // rounding used up every weight
}

}  // namespace lathe::text
