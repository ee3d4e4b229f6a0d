// Owns the order of filling, warming up, rolling back and timing.
#include "bench/decode/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "bench/common/clock.h"

namespace lathe::bench {

namespace {

// Positions filled between two words of progress: more as long as they take less than this.
constexpr int kFirstChunk = 16;
constexpr int kLargestChunk = 4096;
constexpr double kChunkSeconds = 0.2;

// A test is warmed up by a repetition that does not count; one that would take longer than this, by
// its first tokens alone.
constexpr double kLongRepetition = 2;
constexpr std::size_t kProbe = 16;

// The same in every run. Any token would do: none changes how long a step takes.
std::vector<std::int32_t> prompt_tokens(int count, int vocab) {
  std::minstd_rand random(1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab));
  return tokens;
}

}  // namespace

Result<void> Measurement::run(const Test& test, int repetitions, Samples& samples) {
  LATHE_TRY(fill());
  std::vector<std::int32_t> tokens = test.prompt > 0
                                         ? prompt_tokens(test.prompt, session_.plan().spec.vocab)
                                         : std::vector<std::int32_t>(std::size_t(test.gen));
  const std::string what = "measuring " + test.name();
  watch_.progress(what, 0, repetitions);
  if (!watch_.interrupted()) LATHE_TRY(warm_up(test, tokens));
  for (int done = 0; done < repetitions && !watch_.interrupted(); ++done) {
    watch_.progress(what, done, repetitions);
    LATHE_TRY(repeat(test, tokens, samples));
  }
  return {};
}

Result<void> Measurement::fill() {
  const std::vector<std::int32_t> tokens = prompt_tokens(depth_, session_.plan().spec.vocab);
  std::span<const std::int32_t> left =
      std::span(tokens).subspan(static_cast<std::size_t>(std::min(session_.length(), depth_)));
  int chunk = kFirstChunk;
  while (!left.empty() && !watch_.interrupted()) {
    const auto piece = left.first(std::min(left.size(), static_cast<std::size_t>(chunk)));
    left = left.subspan(piece.size());
    const Clock::time_point start = Clock::now();
    LATHE_TRY(session_.feed(piece));
    LATHE_ASSIGN(next_, session_.sampled());  // waits for the last step
    LATHE_TRY(check_tokens({&next_, 1}));
    if (seconds_since(start) < kChunkSeconds) chunk = std::min(2 * chunk, kLargestChunk);
    watch_.progress("filling the KV cache", session_.length(), depth_);
  }
  return {};
}

Result<void> Measurement::warm_up(const Test& test, std::span<std::int32_t> tokens) {
  const std::span<std::int32_t> probe = tokens.first(std::min(tokens.size(), kProbe));
  LATHE_TRY(decode(test, probe));
  LATHE_ASSIGN(const double seconds, decode(test, probe));
  const double ratio = static_cast<double>(tokens.size()) / static_cast<double>(probe.size());
  if (seconds * ratio < kLongRepetition) LATHE_TRY(decode(test, tokens));
  return {};
}

Result<void> Measurement::repeat(const Test& test, std::span<std::int32_t> tokens,
                                 Samples& samples) {
  double before = 0, after = 0;
  if (meter_) {
    LATHE_ASSIGN(before, meter_->joules());
  }
  LATHE_ASSIGN(const double seconds, decode(test, tokens));
  if (meter_) {
    LATHE_ASSIGN(after, meter_->joules());
  }
  samples.seconds.push_back(seconds);
  samples.joules += after - before;
  return {};
}

Result<double> Measurement::decode(const Test& test, std::span<std::int32_t> tokens) {
  LATHE_TRY(session_.rollback(depth_));
  const Clock::time_point start = Clock::now();
  if (test.gen > 0) {
    LATHE_TRY(session_.generate(next_, tokens));
    const double seconds = seconds_since(start);
    LATHE_TRY(check_tokens(tokens));
    return seconds;
  }
  LATHE_TRY(session_.feed(tokens));
  LATHE_ASSIGN(const std::int32_t last, session_.sampled());  // waits for the last step
  const double seconds = seconds_since(start);
  LATHE_TRY(check_tokens({&last, 1}));
  return seconds;
}

// What follows a token that is none runs on garbage, and its speed would say nothing.
Result<void> Measurement::check_tokens(std::span<const std::int32_t> tokens) const {
  const auto none = std::find(tokens.begin(), tokens.end(), -1);
  if (none == tokens.end()) return {};
  const auto position = session_.length() - (tokens.end() - none);
  return Error{Code::internal, fmt::format("no logit at position {} is a number", position), {}};
}

double bytes_per_token(const Plan& plan, const Test& test) {
  double kv = 0;
  for (int i = 1; i <= test.tokens(); ++i)
    kv += static_cast<double>(plan.kv_bytes_read(test.depth + i));
  return static_cast<double>(plan.counts().weight_bytes_read) + kv / test.tokens();
}

}  // namespace lathe::bench
