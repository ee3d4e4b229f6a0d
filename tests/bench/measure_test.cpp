// Holds a measurement to the positions it runs at, on a session that records what it is asked.
#include "bench/decode/measure.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/bench/tiny_model_file.h"

namespace lathe::bench {
namespace {

// Decodes nothing; notes "rollback 8", "generate 4 @ 8", runs of steps as one.
class RecordingSession final : public Session {
 public:
  explicit RecordingSession(Plan plan) : plan_(std::move(plan)) {}

  const Plan& plan() const override { return plan_; }
  const SessionReport& report() const override { return report_; }
  int length() const override { return length_; }
  Result<void> step(std::int32_t token) override {
    EXPECT_TRUE(token >= 0 && token < plan_.spec.vocab);
    ++length_;
    ++steps_;
    return {};
  }
  Result<void> feed(std::span<const std::int32_t> tokens) override {
    for (const std::int32_t token : tokens) LATHE_TRY(step(token));
    return {};
  }
  Result<int> generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                             std::span<const std::int32_t>,
                             const std::function<void(std::int32_t)>&) override {
    EXPECT_EQ(token, length_ == 0 ? 0 : last_) << "what follows is not what was generated";
    note("generate " + std::to_string(tokens.size()) + " @ " + std::to_string(length_));
    for (std::int32_t& sampled : tokens) sampled = sampled_;
    length_ += static_cast<int>(tokens.size());
    return static_cast<int>(tokens.size());
  }
  Result<void> set_sampling(const Sampling&) override { return {}; }
  Result<std::int32_t> sampled() override {
    note("steps " + std::to_string(steps_) + " @ " + std::to_string(length_ - steps_));
    steps_ = 0;
    last_ = sampled_;
    return sampled_;
  }
  Result<std::span<const float>> logits() override { return std::span<const float>(); }
  Result<void> rollback(int length) override {
    EXPECT_LE(length, length_);
    length_ = length;
    return {};
  }
  Result<double> read_rate() override { return 0.0; }
  // What no measurement asks for.
  Result<void> step_hidden(std::span<const float>, std::int32_t) override { return nothing(); }
  Result<void> read_hidden(HiddenState, std::span<float>) override { return nothing(); }
  Result<std::vector<double>> step_times() override { return nothing(); }
  Result<RoundTrip> submit_round_trip(int) override { return nothing(); }
  Result<void> read_logits(int, std::span<float>) override { return nothing(); }
  Result<std::int32_t> choose(TokenSet) override { return nothing(); }
  Result<int> generate_constrained(std::int32_t, std::span<std::int32_t>,
                                   std::span<const std::int32_t>, const Constraint&,
                                   const std::function<void(std::int32_t)>&,
                                   const std::function<bool()>&) override {
    return nothing();
  }
  Result<void> reset() override { return nothing(); }
  Result<void> read_kv(const KvRange&, std::span<float>) override { return nothing(); }
  Result<void> write_kv(const KvRange&, std::span<const float>) override { return nothing(); }
  Result<KvCapture> capture_kv(int, int) override { return nothing(); }
  Result<KvSnapshot> snapshot(int) override { return nothing(); }
  Result<void> restore(const KvSnapshot&) override { return nothing(); }

  static Error nothing() { return {Code::unsupported, "This session only takes notes.", {}}; }
  void note(std::string what) { calls_.push_back(std::move(what)); }

  Plan plan_;
  SessionReport report_;
  std::vector<std::string> calls_;
  std::int32_t sampled_ = 5;
  std::int32_t last_ = 0;
  int length_ = 0;
  int steps_ = 0;
};

class MeasureTest : public ::testing::Test {
 protected:
  MeasureTest() {
    const auto file = GgufFile::open(model_.path());
    PlanOptions options;
    options.kv = Format::f16;
    auto plan = build_plan(*file.value(), options);
    session_ = std::make_unique<RecordingSession>(std::move(plan).value());
    watch_.progress = [](std::string_view, std::int64_t, std::int64_t) {};
    watch_.interrupted = [this] { return interrupted_; };
  }

  using Calls = std::vector<std::string>;

  TinyModelFile model_;
  std::unique_ptr<RecordingSession> session_;
  Watch watch_;
  bool interrupted_ = false;
};

TEST_F(MeasureTest, EveryRepetitionStartsAtTheDepth) {
  Measurement measurement(*session_, 40, nullptr, watch_);
  Samples samples;
  ASSERT_TRUE(measurement.run({0, 20, 40}, 2, samples));
  EXPECT_EQ(session_->calls_,
            (Calls{"steps 16 @ 0", "steps 24 @ 16",                             // the depth
                   "generate 16 @ 40", "generate 16 @ 40", "generate 20 @ 40",  // warm-up
                   "generate 20 @ 40", "generate 20 @ 40"}));
  EXPECT_EQ(samples.seconds.size(), 2u);
}

TEST_F(MeasureTest, TheDepthIsFilledOnce) {
  Measurement measurement(*session_, 8, nullptr, watch_);
  Samples first, second;
  ASSERT_TRUE(measurement.run({0, 4, 8}, 1, first));
  ASSERT_TRUE(measurement.run({4, 0, 8}, 1, second));
  EXPECT_EQ(std::count(session_->calls_.begin(), session_->calls_.end(), "steps 8 @ 0"), 1);
  EXPECT_EQ(session_->calls_.back(), "steps 4 @ 8");
}

TEST_F(MeasureTest, SamplesOfTurnsAddUp) {
  Measurement measurement(*session_, 0, nullptr, watch_);
  Samples samples;
  ASSERT_TRUE(measurement.run({0, 4, 0}, 3, samples));
  ASSERT_TRUE(measurement.run({0, 4, 0}, 3, samples));
  EXPECT_EQ(samples.seconds.size(), 6u);
}

TEST_F(MeasureTest, EnergyIsThatOfTheRepetitions) {
  const auto meter = EnergyMeter::open(0, {LATHE_TEST_MANAGEMENT, LATHE_TEST_MANAGEMENT});
  ASSERT_TRUE(meter);
  Measurement measurement(*session_, 0, &meter.value(), watch_);
  Samples samples;
  ASSERT_TRUE(measurement.run({0, 4, 0}, 3, samples));
  EXPECT_NEAR(samples.joules, 0.75, 1e-9);
}

TEST_F(MeasureTest, TokensThatAreNoneEndIt) {
  session_->sampled_ = -1;
  Measurement measurement(*session_, 0, nullptr, watch_);
  Samples samples;
  const Result<void> measured = measurement.run({0, 4, 0}, 1, samples);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().message, "no logit at position 0 is a number");
}

TEST_F(MeasureTest, AnInterruptLeavesWhatWasMeasured) {
  int asked = 0;
  watch_.interrupted = [&] { return ++asked > 3; };
  Measurement measurement(*session_, 0, nullptr, watch_);
  Samples samples;
  ASSERT_TRUE(measurement.run({0, 4, 0}, 100, samples));
  EXPECT_EQ(samples.seconds.size(), 2u);
}

TEST_F(MeasureTest, BytesPerTokenAreWeightsAndTheMeanOfTheKvEntries) {
  const Plan& plan = session_->plan();
  const auto weights = static_cast<double>(plan.counts().weight_bytes_read);
  const auto position = static_cast<double>(plan.counts().kv_bytes_per_position);
  EXPECT_DOUBLE_EQ(bytes_per_token(plan, {0, 1, 0}), weights + position);
  // Positions 11 to 14 are seen by the four tokens behind 10.
  EXPECT_DOUBLE_EQ(bytes_per_token(plan, {0, 4, 10}), weights + 12.5 * position);
}

}  // namespace
}  // namespace lathe::bench
