// Owns --parity: what a session computes beside what the oracles do.
#include "examples/decode/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "examples/command_line.h"

namespace lathe::decode {

namespace {

using State = std::vector<float>;

// Of the relative error, by the format of the cache.
double bound(Format kv) {
  return kv == Format::q8_0 ? 2e-2 : 2e-3;
}

// How far vectors are from those that they should be.
class Distance {
 public:
  void add(std::span<const float> found, std::span<const float> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double a = found[i], b = expected[i];
      product_ += a * b;
      found_ += a * a;
      expected_ += b * b;
      difference_ += (a - b) * (a - b);
      greatest_ = std::max(greatest_, std::fabs(a - b));
    }
  }
  double relative() const { return std::sqrt(difference_ / expected_); }
  std::string text() const {
    return fmt::format("cosine {:.9f}, relative error {:.2e}, greatest difference {:.2e}",
                       product_ / std::sqrt(found_ * expected_), relative(), greatest_);
  }

 private:
  double product_ = 0, found_ = 0, expected_ = 0, difference_ = 0, greatest_ = 0;
};

struct Pair {
  std::unique_ptr<Session> session;
  std::unique_ptr<Session> oracles;
};

Result<Pair> open(const std::shared_ptr<const GgufFile>& file, SessionOptions options,
                  const ModelPart& part) {
  Pair pair;
  options.plan.part = part;
  LATHE_ASSIGN(pair.session, Session::open(file, options));
  options.executor = ExecutorKind::cpu;
  // Of a cache in q8_0 only the fused plan has oracles.
  if (options.plan.kv != Format::q8_0) options.plan.fusion = Fusion::none;
  LATHE_ASSIGN(pair.oracles, Session::open(file, options));
  return pair;
}

// Replaces the states by those that the oracles make of them.
Result<Distance> through_layer(const Pair& pair, std::span<const std::int32_t> tokens,
                               std::vector<State>& states) {
  Distance distance;
  State found(std::size_t(pair.session->plan().spec.hidden)), expected(found.size());
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (Session* session : {pair.session.get(), pair.oracles.get()})
      LATHE_TRY(states[t].empty() ? session->step(tokens[t])
                                  : session->step_hidden(states[t], tokens[t]));
    LATHE_TRY(pair.session->read_hidden(HiddenState::stream, found));
    LATHE_TRY(pair.oracles->read_hidden(HiddenState::stream, expected));
    distance.add(found, expected);
    states[t] = expected;
  }
  return distance;
}

Result<Distance> through_model(const Pair& pair, std::span<const std::int32_t> tokens) {
  Distance distance;
  for (const std::int32_t token : tokens) {
    LATHE_TRY(pair.session->step(token));
    LATHE_TRY(pair.oracles->step(token));
    LATHE_ASSIGN(const std::span<const float> found, pair.session->logits());
    LATHE_ASSIGN(const std::span<const float> expected, pair.oracles->logits());
    distance.add(found, expected);
  }
  return distance;
}

}  // namespace

Result<bool> is_on_par(const std::shared_ptr<const GgufFile>& file, const Prompt& prompt,
                       const Options& options) {
  bool good = true;
  const auto tell = [&](const std::string& what, const Distance& distance) {
    const bool within = distance.relative() <= bound(options.session.plan.kv);
    good &= within;
    return command_line::print(
        fmt::format("{:<10} {}{}\n", what, distance.text(), within ? "" : "  OFF"));
  };
  LATHE_ASSIGN(const ModelSpec spec, read_model_spec(*file));
  std::vector<State> states(prompt.ids.size());
  for (int layer = 0; layer < spec.layers; ++layer) {
    const ModelPart part = {.first_layer = layer,
                            .layers = 1,
                            .input = layer == 0 ? PartInput::token : PartInput::hidden,
                            .output = PartOutput::hidden};
    LATHE_ASSIGN(const Pair pair, open(file, options.session, part));
    LATHE_ASSIGN(const Distance distance, through_layer(pair, prompt.ids, states));
    LATHE_TRY(tell(fmt::format("layer {}", layer), distance));
  }
  LATHE_ASSIGN(const Pair pair, open(file, options.session, {}));
  LATHE_ASSIGN(const Distance distance, through_model(pair, prompt.ids));
  LATHE_TRY(tell("logits", distance));
  LATHE_TRY(command_line::print(fmt::format(
      "{} on {}, {} positions: {}\n", pair.session->report().executor,
      pair.session->report().device, prompt.ids.size(), good ? "within the bound" : "OFF")));
  return good;
}

}  // namespace lathe::decode
