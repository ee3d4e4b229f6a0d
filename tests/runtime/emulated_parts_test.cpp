// Owns the proof without a GPU that parts of a model make the whole, by every executor: the fused
// kernels are emulated.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/model_parts.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

// A last bit that mega uses otherwise, or a norm that is a kernel of its own, may change a rounding
// of the activations.
constexpr double kBound = 1e-4;

void expect_parts(TinyModel model, ExecutorKind executor, Fusion fusion) {
  model.epsilon = kEpsilonThatMatters;
  SCOPED_TRACE(model.architecture + ", " + executor_name(executor));
  const auto file = make_model(model);
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  const auto open = [&](const ModelPart& part) -> std::unique_ptr<Session> {
    SessionOptions options = emulated_options(executor);
    options.plan.fusion = fusion;
    options.plan.part = part;
    auto session = open_session(file, options, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    return session ? std::move(*session) : nullptr;
  };
  expect_parts_make_the_whole(open, *file, kBound);
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

TEST(EmulatedParts, MakeTheWholeInEveryFamily) {
  for (TinyModel model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()}) {
    model.layers = 2;
    for (const ExecutorKind executor : {ExecutorKind::graph, ExecutorKind::mega})
      expect_parts(fusible(model), executor, Fusion::full);
  }
}

TEST(EmulatedParts, MakeTheWholeByLaunches) {
  expect_parts(model_shape(2), ExecutorKind::eager, Fusion::full);  // q4_k and q6_k
}

TEST(EmulatedParts, MakeTheWholeByTheOracles) {
  for (TinyModel model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()}) {
    model.layers = 2;
    expect_parts(fusible(model), ExecutorKind::cpu, Fusion::none);
    expect_parts(fusible(model), ExecutorKind::cpu, Fusion::full);
  }
}

// But for the bit that says which token a value belongs to.
TEST(EmulatedParts, HiddenStatesOfMegaAreThoseOfLaunches) {
  const auto states = [](ExecutorKind executor) {
    FakeDriver fake(emulated(3, verification::fresh_seed()));
    const auto session = open_session(make_model(fusible(tiny_gemma3())),
                                      emulated_options(executor), fake.platform())
                             .value();
    std::vector<std::uint32_t> bits;
    for (const std::int32_t token : {3, 50, 7}) {
      EXPECT_TRUE(session->step(token));
      std::vector<float> state(std::size_t(session->plan().spec.hidden));
      EXPECT_TRUE(session->read_hidden(HiddenState::stream, state));
      for (const float value : state) bits.push_back(std::bit_cast<std::uint32_t>(value) | 1u);
    }
    return bits;
  };
  EXPECT_EQ(states(ExecutorKind::mega), states(ExecutorKind::graph));
}

}  // namespace
}  // namespace lathe::testing
