// Owns the choice of the next token from the model's logits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lathe::text {

// The defaults choose the likeliest token and leave every other rule off.
struct SamplerOptions {
  float temperature = 0.0f;     // 0 chooses the likeliest token; up to 100
  int32_t top_k = 0;            // keep the k likeliest; 0 keeps all
  float top_p = 1.0f;           // keep the likeliest that together reach this probability
  float min_p = 0.0f;           // keep those at least this likely relative to the likeliest
  float repeat_penalty = 1.0f;  // above 1 makes recent tokens less likely
  int32_t repeat_window = 64;   // how many tokens are recent; 0 turns the penalty off
  uint64_t seed = 0;
};

// Empty if the options make sense, else a sentence that names the first one that doesn't.
std::string check(const SamplerOptions& options);

// xoshiro256** 1.0 (Blackman and Vigna), its state filled by splitmix64 from the seed: integer
// arithmetic only, so a seed gives the same numbers on every platform.
class Random {
 public:
  explicit Random(uint64_t seed);

  uint64_t next();

  // Uniform in [0, 1): the upper 53 bits of next() times 2^-53, which is exact.
  double next_unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::array<uint64_t, 4> state_;
};

// The token with the greatest logit. Of equal ones the lower id wins, NaN never does; -1 if no
// logit is a number.
int32_t argmax(std::span<const float> logits);

// Applies its rules in this order: repeat penalty, top-k, top-p, min-p, temperature, draw. Top-p
// and min-p look at the probabilities at temperature 1, so a high temperature never widens the
// choice. With a temperature above 0, each call draws exactly one random number.
class Sampler {
 public:
  // Null and an error sentence if the options don't make sense.
  static std::unique_ptr<Sampler> create(const SamplerOptions& options, std::string* error);

  // -1 if no logit is a number. Allocates on the first call, and again only if there are ever more
  // logits.
  int32_t sample(std::span<const float> logits);

  // Tells which token the text goes on with (a sampled one, or one of the prompt), for the repeat
  // penalty.
  void accept(int32_t token);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // in proportion to the probability
  };

  explicit Sampler(const SamplerOptions& options);

  float penalized(float logit) const;
  void collect(std::span<const float> logits);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void sort_first(size_t count);
  double weigh(double temperature);
  int32_t draw();

  SamplerOptions options_;
  Random random_;
  std::vector<Candidate> candidates_;
  Candidate best_{};
  size_t sorted_ = 0;            // how many candidates at the front are in order, best first
  std::vector<int32_t> recent_;  // the last accepted tokens, as a ring
  size_t recent_next_ = 0;
  std::vector<bool> penalize_;  // by token id, only set during a call
};

}  // namespace lathe::text
