// Holds parts of a model, hidden states, times of steps and the parity gate on a real GPU. Skipped
// with the reason where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/model_parts.h"
#include "tests/runtime/relative_error.h"
#include "tests/runtime/shared_gpu.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

// Of the logits against the oracles': the design's bound for kernels that keep f32 activations.
constexpr double kBound = 2e-3;
// Of parts against the whole, by the same kernels but for the ends.
constexpr double kPartsBound = 1e-4;

class GpuParts : public SharedGpu {
 protected:
  static SessionOptions options_for(ExecutorKind executor, const ModelPart& part = {}) {
    SessionOptions options;
    options.executor = executor;
    options.plan.context = 32;
    options.plan.part = part;
    options.kernels = device_;
    return options;
  }
  static std::unique_ptr<Session> open(const std::shared_ptr<const GgufFile>& file,
                                       const SessionOptions& options) {
    auto session = Session::open(file, options);
    EXPECT_TRUE(session) << session.error().text();
    return session ? std::move(*session) : nullptr;
  }
};

TEST_F(GpuParts, MakeTheWholeByEveryExecutor) {
  TinyModel gemma = tiny_gemma3();  // with post-norms, which a part's end does by itself
  gemma.layers = 2;
  for (TinyModel model : {model_shape(2), fusible(gemma)}) {
    model.epsilon = kEpsilonThatMatters;
    const auto file = make_model(model);
    for (const ExecutorKind executor :
         {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::automatic}) {
      SCOPED_TRACE(model.architecture + ", " + executor_name(executor));
      expect_parts_make_the_whole(
          [&](const ModelPart& part) { return open(file, options_for(executor, part)); }, *file,
          kPartsBound);
    }
  }
}

TEST_F(GpuParts, MakeTheWholeWithAKernelForEachOperation) {
  for (TinyModel model : {tiny_llama(), tiny_qwen3(), tiny_gemma3()}) {
    model.layers = 2;
    model.epsilon = kEpsilonThatMatters;
    const auto file = make_model(model);
    SCOPED_TRACE(model.architecture);
    expect_parts_make_the_whole(
        [&](const ModelPart& part) {
          SessionOptions options = options_for(ExecutorKind::graph, part);
          options.plan.fusion = Fusion::none;
          return open(file, options);
        },
        *file, kPartsBound);
  }
}

TEST_F(GpuParts, ALayersHiddenStatesAreTheOracles) {
  const auto file = make_model(3);
  const ModelPart layer = {
      .first_layer = 1, .layers = 1, .input = PartInput::hidden, .output = PartOutput::hidden};
  for (const ExecutorKind executor :
       {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::automatic}) {
    const auto session = open(file, options_for(executor, layer));
    SessionOptions oracles = options_for(ExecutorKind::cpu, layer);
    oracles.kernels = nullptr;
    const auto cpu = open(file, oracles);
    ASSERT_TRUE(session && cpu);
    std::vector<float> state(std::size_t(cpu->plan().spec.hidden)), found(state.size()),
        expected(state.size());
    for (int position = 0; position < 8; ++position) {
      for (std::size_t i = 0; i < state.size(); ++i)
        state[i] = std::sin(float(i * i) + float(position));
      ASSERT_TRUE(session->step_hidden(state) && cpu->step_hidden(state));
      for (const HiddenState which : {HiddenState::stream, HiddenState::normed}) {
        ASSERT_TRUE(session->read_hidden(which, found) && cpu->read_hidden(which, expected));
        EXPECT_LE(relative_error(found, expected), kBound)
            << session->report().executor << " at " << position;
      }
    }
  }
}

TEST_F(GpuParts, StepsAndRoundTripsTakeTime) {
  const auto file = make_model();
  SessionOptions options = options_for(ExecutorKind::eager);
  options.time_steps = true;
  const auto session = open(file, options);
  ASSERT_TRUE(session);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(session->step(3));
  const std::vector<double> times = session->step_times().value();
  ASSERT_EQ(times.size(), session->plan().steps.size());
  for (const double time : times) {
    EXPECT_GT(time, 0.1);  // microseconds: no launch is shorter
    EXPECT_LT(time, 1e4);
  }
  const RoundTrip trip = session->submit_round_trip(100).value();
  EXPECT_GT(trip.least, 0.5);
  EXPECT_LT(trip.median, 1e4);
  EXPECT_LE(trip.least, trip.median);
  RecordProperty("round_trip_us", std::to_string(trip.median));
}

TEST_F(GpuParts, PassTheParityGate) {
  for (const ExecutorKind executor :
       {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::automatic}) {
    SessionOptions options = options_for(executor);
    options.parity = 0.9999;
    const auto session = open(make_model(), options);
    ASSERT_TRUE(session);
    EXPECT_GE(session->report().parity, 0.9999);
    EXPECT_EQ(session->length(), 0);
    options.parity = 0;
    const auto plain = open(make_model(), options);
    std::vector<std::int32_t> found(8), expected(8);
    ASSERT_TRUE(session->generate(3, found) && plain->generate(3, expected));
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace lathe::testing
