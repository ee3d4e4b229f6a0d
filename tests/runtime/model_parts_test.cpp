// Owns what sessions of parts of a model refuse, and what they bring over.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

constexpr ModelPart kLayer = {
    .first_layer = 1, .layers = 1, .input = PartInput::hidden, .output = PartOutput::hidden};

SessionOptions options_for(ExecutorKind executor, const ModelPart& part) {
  SessionOptions options;
  options.executor = executor;
  options.plan.context = 8;
  options.plan.fusion = Fusion::full;
  options.plan.part = part;
  options.disk_cache = false;
  return options;
}

std::unique_ptr<Session> open(const FakeDriver& fake, ExecutorKind executor,
                              const ModelPart& part) {
  auto session = open_session(make_model(3), options_for(executor, part), fake.platform());
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

constexpr ExecutorKind kExecutors[] = {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega,
                                       ExecutorKind::cpu};

TEST(ModelParts, ThatMakeNoSenseAreRefusedWithTheReason) {
  struct Case {
    ModelPart part;
    const char* why;
  };
  const Case cases[] = {
      {{.first_layer = 3, .input = PartInput::hidden}, "layers from 3 on, and the model has 3"},
      {{.first_layer = -1, .input = PartInput::hidden}, "layers from -1 on, and the model has 3"},
      {{.first_layer = 2, .layers = 2, .input = PartInput::hidden},
       "2 layers from 2 on, and the model has 3"},
      {{.layers = -1}, "-1 layers from 0 on"},
      {{.first_layer = 1}, "layer 1 takes no token, but a hidden state"},
      {{.layers = 1, .blocks = PartBlocks::ffn}, "from a hidden state to a hidden state"},
      {{.input = PartInput::hidden, .output = PartOutput::hidden, .blocks = PartBlocks::ffn},
       "blocks of one kind are of one layer"},
      {{.input = PartInput::hidden, .output = PartOutput::hidden, .residual = false},
       "both blocks of a layer without the residual"},
  };
  FakeDriver fake;
  for (const auto& [part, why] : cases) {
    for (const ExecutorKind executor : {ExecutorKind::graph, ExecutorKind::cpu}) {
      const auto refused =
          open_session(make_model(3), options_for(executor, part), fake.platform());
      ASSERT_FALSE(refused) << why;
      EXPECT_EQ(refused.error().code, Code::invalid_argument);
      EXPECT_NE(refused.error().message.find(why), std::string::npos) << refused.error().message;
    }
  }
  EXPECT_EQ(fake.calls("cuLibraryLoadData"), 0);
}

TEST(ModelParts, HaveWeightsAndCachesOfTheirLayersAlone) {
  FakeDriver fake;
  const auto whole = open(fake, ExecutorKind::graph, {}),
             layer = open(fake, ExecutorKind::graph, kLayer);
  EXPECT_EQ(3 * layer->report().kv_bytes, whole->report().kv_bytes);
  EXPECT_LT(3 * layer->report().weight_bytes, whole->report().weight_bytes);
  EXPECT_EQ(layer->report().bytes_to_device, 8 + 4 * whole->plan().spec.hidden);
  EXPECT_EQ(layer->report().bytes_to_host, 4 * whole->plan().spec.hidden);
  EXPECT_EQ(layer->report().chunk, 0);
  EXPECT_TRUE(whole->plan().whole);
  EXPECT_FALSE(layer->plan().whole);
  for (const Step& step : layer->plan().steps)
    EXPECT_EQ(step.layer, step.label == "hidden" ? -1 : 1) << step.label;
}

TEST(ModelParts, TakeWhatTheyAreForAndRefuseTheRestBeforeAnyLaunch) {
  for (const ExecutorKind executor : kExecutors) {
    SCOPED_TRACE(executor_name(executor));
    FakeDriver fake;
    const auto layer = open(fake, executor, kLayer);
    ASSERT_TRUE(layer);
    const std::vector<float> state(std::size_t(layer->plan().spec.hidden), 0.5f);
    std::vector<float> found(state.size());
    std::vector<std::int32_t> tokens(2);
    fake.reset_counts();
    const auto expect = [](const auto& result, const char* why) {
      ASSERT_FALSE(result) << why;
      EXPECT_EQ(result.error().code, Code::invalid_argument);
      EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
    };
    const char* no_tokens = "takes hidden states, not tokens";
    const char* no_choice = "ends with a hidden state: no token is chosen";
    expect(layer->step(1), no_tokens);
    expect(layer->feed(std::vector{1, 2}), no_tokens);
    expect(layer->generate(1, tokens), no_choice);
    expect(layer->generate_constrained(1, tokens, {}, [](auto, auto) {}), no_choice);
    expect(layer->read_hidden(HiddenState::stream, found), "no hidden state before the next step");
    expect(layer->step_hidden(std::span(state).first(3)), "values, not 3");
    EXPECT_EQ(layer->step_hidden(state, 160).error().code, Code::out_of_range);
    EXPECT_EQ(layer->step_hidden(state, -2).error().code, Code::out_of_range);
    EXPECT_EQ(fake.calls(), 0);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(layer->step_hidden(state));
    EXPECT_EQ(layer->step_hidden(state).error().code, Code::out_of_range);
    EXPECT_EQ(layer->length(), 8);
    expect(layer->sampled(), no_choice);
    expect(layer->logits(), no_choice);
    expect(layer->choose({}), no_choice);
    expect(layer->read_hidden(HiddenState::normed, std::span(found).first(3)), "values, not 3");
    EXPECT_TRUE(layer->read_hidden(HiddenState::normed, found));
    EXPECT_TRUE(layer->rollback(2));
    EXPECT_TRUE(layer->step_hidden(state));

    // From a hidden state to logits there is a next token, but no row of the embedding for it.
    const auto rest = open(fake, executor, {.first_layer = 1, .input = PartInput::hidden});
    ASSERT_TRUE(rest);
    expect(rest->generate(1, tokens), no_tokens);
    ASSERT_TRUE(rest->step_hidden(state, 7));
    EXPECT_GE(rest->sampled().value(), 0);
    EXPECT_TRUE(rest->choose({}));

    const auto whole = open(fake, executor, {});
    expect(whole->step_hidden(state), "takes tokens");
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }
}

// The token that a state stands for counts as recent; -1 stands for none.
TEST(ModelParts, RecentTokensAreThoseThatStatesStandFor) {
  FakeDriver fake;
  for (const ExecutorKind executor : {ExecutorKind::graph, ExecutorKind::cpu}) {
    const auto likeliest = [&](std::int32_t token) {
      const auto session = open(fake, executor, {.input = PartInput::hidden});
      EXPECT_TRUE(session->set_sampling({.repeat_penalty = 10}));
      std::vector<float> state(std::size_t(session->plan().spec.hidden));
      for (std::size_t i = 0; i < state.size(); ++i) state[i] = float(i % 7) - 3;
      EXPECT_TRUE(session->step_hidden(state, token));
      EXPECT_EQ(session->choose({}).value(), session->sampled().value());
      return session->sampled().value();
    };
    const std::int32_t plain = likeliest(-1);
    EXPECT_EQ(likeliest((plain + 1) % 160), plain);
    EXPECT_NE(likeliest(plain), plain);
  }
}

TEST(ModelParts, SnapshotsStayWithTheirPart) {
  FakeDriver fake;
  const auto layer = open(fake, ExecutorKind::graph, kLayer);
  const auto same = open(fake, ExecutorKind::cpu, kLayer);
  ModelPart other_layer = kLayer;
  other_layer.first_layer = 2;
  const auto other = open(fake, ExecutorKind::graph, other_layer);
  const std::vector<float> state(std::size_t(layer->plan().spec.hidden), 0.5f);
  ASSERT_TRUE(layer->step_hidden(state));
  const KvSnapshot snapshot = layer->snapshot(1).value();
  EXPECT_TRUE(same->restore(snapshot));
  EXPECT_EQ(same->length(), 1);
  EXPECT_EQ(other->restore(snapshot).error().code, Code::invalid_argument);
}

TEST(ModelParts, HaveNoBatches) {
  FakeDriver fake;
  BatchOptions options;
  options.session = options_for(ExecutorKind::graph, {.layers = 1});
  const auto refused = open_batch(make_model(3), options, fake.platform());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::not_eligible);
  EXPECT_NE(refused.error().message.find("part of the model"), std::string::npos);
  for (const bool timed : {true, false}) {
    options.session = options_for(ExecutorKind::graph, {});
    options.session.time_steps = timed;
    options.session.parity = timed ? 0 : 0.5;
    EXPECT_EQ(open_batch(make_model(3), options, fake.platform()).error().message,
              "A batch has no times of its steps, and no parity with the oracles.");
  }
}

}  // namespace
}  // namespace lathe::testing
