// Owns the proof without a GPU that the mega executor computes what the graph executor does: whole
// sessions on the fake driver, whose kernels here are the device code itself, emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/drawn_text.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

struct Decoded {
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> logits;  // their bits, after the last token
  bool operator==(const Decoded&) const = default;
};

// A prompt of two tokens, then generated ones, some in one launch and some in the next.
Decoded decode(const TinyModel& model, ExecutorKind executor, int multiprocessors, Format kv,
               const char* tuning, std::uint64_t seed) {
  FakeDriver fake(emulated(multiprocessors, seed));
  SessionOptions options = emulated_options(executor);
  options.plan.kv = kv;
  options.plan.tuning = tuning;
  Decoded out;
  {
    const auto session = open_session(make_model(model), options, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    if (!session) return out;
    EXPECT_TRUE((*session)->step(3));
    std::vector<std::int32_t> first(3), second(2);
    EXPECT_TRUE((*session)->generate(5, first));
    EXPECT_TRUE((*session)->generate(first.back(), second));
    out.ids = first;
    out.ids.insert(out.ids.end(), second.begin(), second.end());
    const auto logits = (*session)->logits();
    EXPECT_TRUE(logits) << logits.error().text();
    if (logits)
      for (const float v : *logits) out.logits.push_back(std::bit_cast<std::uint32_t>(v));
  }
  for (const std::string& violation : fake.violations()) ADD_FAILURE() << violation;
  return out;
}

void expect_same(const TinyModel& model, int multiprocessors, Format kv = Format::f16) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE(model.architecture + ", " + std::to_string(multiprocessors) +
               " multiprocessors, seed " + std::to_string(seed));
  for (const char* tuning : {"matvec.paired=0", "matvec.paired=1", "attend.matrix=1"}) {
    if (kv != Format::f16 && tuning == std::string_view("attend.matrix=1")) continue;
    SCOPED_TRACE(tuning);
    const Decoded graph = decode(model, ExecutorKind::graph, multiprocessors, kv, tuning, seed);
    EXPECT_EQ(graph.ids.size(), 5u);
    EXPECT_EQ(graph.logits.size(), static_cast<std::size_t>(model.vocab));
    EXPECT_TRUE(graph == decode(model, ExecutorKind::mega, multiprocessors, kv, tuning, seed ^ 1))
        << "the ids or the bits of the logits differ";
  }
}

TEST(EmulatedSession, MegaIsGraphInEveryFamily) {
  for (const TinyModel& model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()})
    expect_same(fusible(model), 3);
}

TEST(EmulatedSession, MegaIsGraphInEveryMix) {
  TinyModel model = model_shape(2);  // q4_k and q6_k
  expect_same(model, 2);
  model.vocab = 331;  // more row tiles than sums have room for
  expect_same(model, 1);
  model = model_shape(1);
  model.ffn = 2560;  // more tile columns than warps
  expect_same(model, 13);
  expect_same(fusible(tiny_llama(), Format::q4_1), 5, Format::f32);
  model = fusible(tiny_llama(), Format::q4_1);
  model.layers = 1;
  model.hidden = 576;  // three tile columns: four groups of three warps
  model.heads = 9;
  model.kv_heads = 3;
  model.head_dim = model.rotary = 64;
  model.ffn = 768;
  expect_same(model, 4);
  expect_same(fusible(tiny_qwen3(), Format::q5_0), 4, Format::q8_0);
}

// Past the positions that one block takes alone, whose splits meet.
TEST(EmulatedSession, MegaIsGraphInALongContext) {
  TinyModel model = fusible(tiny_llama());
  model.layers = 1;
  model.head_dim = model.rotary = 128;
  model.context = 300;
  std::vector<std::vector<float>> found;
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const ExecutorKind executor : {ExecutorKind::graph, ExecutorKind::mega}) {
    FakeDriver fake(emulated(9, seed));
    SessionOptions options = emulated_options(executor);
    options.plan.kv = Format::f16;
    options.plan.context = model.context;
    options.plan.tuning = "attend.matrix=1";
    const auto session = open_session(make_model(model), options, fake.platform()).value();
    std::vector<std::int32_t> ids(270);
    ASSERT_TRUE(session->generate(3, ids));
    const std::span<const float> logits = session->logits().value();
    found.emplace_back(ids.begin(), ids.end());
    found.back().insert(found.back().end(), logits.begin(), logits.end());
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }
  EXPECT_EQ(found[1], found[0]);
}

TEST(EmulatedSession, MegaIsGraphInTheMixesOfModelFiles) {
  for (const FileMix& mix : file_mixes()) {
    SCOPED_TRACE(mix.name);
    TinyModel model = fusible(tiny_llama(), Format::q4_k);
    model.weights = mix.weights;
    model.exceptions = mix.exceptions;
    expect_same(model, 3);
  }
  for (const Format format : {Format::f16, Format::bf16, Format::iq4_nl, Format::mxfp4})
    expect_same(fusible(tiny_gemma3(), format), 2);  // the head is the embedding
}

// Of one kernel for whole tokens the keys and values are those of launches, to the bit, and it goes
// on from a snapshot as from its own.
TEST(EmulatedSession, SnapshotsGoFromExecutorToExecutor) {
  const auto file = make_model(fusible(tiny_llama()));
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  std::vector<std::unique_ptr<Session>> sessions;
  for (const ExecutorKind executor : {ExecutorKind::graph, ExecutorKind::mega})
    sessions.push_back(open_session(file, emulated_options(executor), fake.platform()).value());
  std::vector<std::vector<float>> keys;
  for (const auto& session : sessions) {
    for (const std::int32_t token : {3, 50, 7, 7}) ASSERT_TRUE(session->step(token));
    const KvCapture all = session->capture_kv(4, 1000).value();
    keys.push_back(all.keys);
    keys.back().insert(keys.back().end(), all.values.begin(), all.values.end());
  }
  EXPECT_EQ(keys[1], keys[0]);
  const KvSnapshot snapshot = sessions[0]->snapshot(3).value();
  std::vector<std::int32_t> expected(4), found(4);
  ASSERT_TRUE(sessions[0]->rollback(3));
  ASSERT_TRUE(sessions[0]->generate(9, expected));
  ASSERT_TRUE(sessions[1]->reset());
  ASSERT_TRUE(sessions[1]->step(1));
  ASSERT_TRUE(sessions[1]->restore(snapshot));
  ASSERT_TRUE(sessions[1]->generate(9, found));
  EXPECT_EQ(found, expected);
  ASSERT_TRUE(sessions[1]->rollback(3));
  const Constraint odd = [](std::span<const std::int32_t>, std::span<std::uint32_t> allowed) {
    std::ranges::fill(allowed, 0xaaaaaaaau);
  };
  ASSERT_EQ(sessions[1]->generate_constrained(9, found, {}, odd).value(), 4);
  for (const std::int32_t token : found) EXPECT_EQ(token % 2, 1);
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

// Where the device stops, and what comes after is what comes after so many tokens without a stop.
TEST(EmulatedSession, StopTokensEndARun) {
  for (const ExecutorKind executor :
       {ExecutorKind::mega, ExecutorKind::graph, ExecutorKind::eager, ExecutorKind::cpu}) {
    SCOPED_TRACE(executor_name(executor));
    FakeDriver fake(emulated(3, verification::fresh_seed()));
    const auto session = open_session(make_model(fusible(tiny_llama())), emulated_options(executor),
                                      fake.platform());
    ASSERT_TRUE(session) << session.error().text();
    std::vector<std::int32_t> all(9), some(9), told;
    ASSERT_TRUE((*session)->generate(5, all));
    ASSERT_TRUE((*session)->rollback(0));
    const std::int32_t stop = all[3];
    const auto expected = std::ranges::find(all, stop) - all.begin() + 1;
    const auto count = (*session)->generate_until(5, some, std::vector{stop, 79},
                                                  [&](std::int32_t id) { told.push_back(id); });
    ASSERT_TRUE(count) << count.error().text();
    EXPECT_EQ(*count, expected);
    some.resize(static_cast<std::size_t>(*count));
    EXPECT_EQ(some, std::vector(all.begin(), all.begin() + *count));
    EXPECT_EQ(told, some);
    EXPECT_EQ((*session)->length(), *count);
    EXPECT_EQ((*session)->sampled().value(), stop);
    EXPECT_FALSE((*session)->logits());
    std::vector<std::int32_t> rest(all.size() - some.size());
    ASSERT_TRUE((*session)->generate(stop, rest));
    EXPECT_EQ(rest, std::vector(all.begin() + *count, all.end()));
    EXPECT_TRUE((*session)->logits());
  }
}

// One launch leaves the exchange as the next one expects it, whoever chooses its tokens.
TEST(EmulatedSession, DrawnTokensAndLikeliestOnesMayAlternate) {
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  const auto session = open_session(make_model(fusible(tiny_llama())),
                                    emulated_options(ExecutorKind::mega), fake.platform())
                           .value();
  std::vector<std::int32_t> expected(4), tokens(3);
  ASSERT_TRUE(session->generate(5, expected));
  for (int drawn : {1, 2, 3}) {
    ASSERT_TRUE(session->rollback(0));
    ASSERT_TRUE(session->set_sampling({.temperature = 1}));
    for (int i = 0; i < drawn; ++i) ASSERT_TRUE(session->step(7));
    ASSERT_TRUE(session->rollback(0));
    ASSERT_TRUE(session->set_sampling({}));
    ASSERT_TRUE(session->step(5));
    EXPECT_EQ(session->sampled().value(), expected[0]);
    ASSERT_TRUE(session->generate(expected[0], tokens));
    EXPECT_EQ(tokens, std::vector(expected.begin() + 1, expected.end())) << drawn << " drawn";
  }
}

TEST(EmulatedSession, ARunIsToldOfItsOwnTokensOnly) {
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  const auto session = open_session(make_model(fusible(tiny_llama())),
                                    emulated_options(ExecutorKind::mega), fake.platform())
                           .value();
  std::vector<std::int32_t> tokens(3), told;
  ASSERT_TRUE(session->feed(std::vector{4, 5, 6, 7}));
  ASSERT_TRUE(session->rollback(1));
  const auto tell = [&](std::int32_t id) { told.push_back(id); };
  ASSERT_TRUE(session->generate_until(9, tokens, {}, tell));
  EXPECT_EQ(told, tokens);

  // An early end, forgotten again.
  const std::vector stops = {tokens[0]};
  ASSERT_TRUE(session->rollback(1));
  ASSERT_EQ(session->generate_until(9, tokens, stops, {}).value(), 1);
  ASSERT_TRUE(session->rollback(0));
  EXPECT_EQ(session->sampled().value(), stops[0]);
}

TEST(EmulatedSession, WhatAListenerThrowsComesOutAfterTheRun) {
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  const auto session = open_session(make_model(fusible(tiny_llama())),
                                    emulated_options(ExecutorKind::mega), fake.platform())
                           .value();
  std::vector<std::int32_t> all(6), tokens(3), rest(3);
  ASSERT_TRUE(session->generate(5, all));
  ASSERT_TRUE(session->rollback(0));
  int told = 0;
  const auto refuse = [&](std::int32_t) { throw ++told; };
  EXPECT_THROW(static_cast<void>(session->generate_until(5, tokens, {}, refuse)), int);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(session->length(), 3);
  EXPECT_EQ(session->sampled().value(), all[2]);
  ASSERT_TRUE(session->generate(all[2], rest));
  EXPECT_EQ(rest, std::vector(all.begin() + 3, all.end()));
}

TEST(EmulatedSession, StopTokensAreChecked) {
  FakeDriver fake(emulated(3, 1));
  SessionOptions options;
  options.disk_cache = false;
  const auto session = open_session(make_model(fusible(tiny_llama())), options, fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  std::vector<std::int32_t> tokens(2);
  const auto unknown = (*session)->generate_until(5, tokens, std::vector{80}, {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "Stop token 80 is not in the vocabulary of 80.");
  const auto many = (*session)->generate_until(5, tokens, std::vector<std::int32_t>(9), {});
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().message, "9 stop tokens are too many: at most 8.");
  EXPECT_EQ((*session)->length(), 0);
}

// What the GPU tests ask of a GPU: the same rules and seeds give the same text by every executor.
TEST(EmulatedSession, EveryExecutorSamplesTheSame) {
  const auto file = make_model(fusible(tiny_llama()));
  for (const Sampling& sampling : kSamplingRules) {
    const auto text = [&](ExecutorKind kind) {
      FakeDriver fake(emulated(3, verification::fresh_seed()));
      const auto session = open_session(file, emulated_options(kind), fake.platform()).value();
      return drawn_text(*session, sampling, 6, 8);
    };
    const auto expected = text(ExecutorKind::eager);
    EXPECT_EQ(text(ExecutorKind::graph), expected);
    EXPECT_EQ(text(ExecutorKind::mega), expected);
  }
}

// A prompt of 21 tokens in chunks of 8, some of them after a rollback.
struct Read {
  std::vector<float> logits;
  std::vector<std::int32_t> ids;
};
Read read_prompt(const TinyModel& model, ExecutorKind executor, Format kv, int chunk) {
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  SessionOptions options = emulated_options(executor);
  options.plan.kv = kv;
  options.plan.chunk = chunk;
  Read out;
  std::vector<std::int32_t> prompt(21);
  for (int i = 0; i < 21; ++i) prompt[static_cast<std::size_t>(i)] = (7 * i + 3) % model.vocab;
  {
    const auto session = open_session(make_model(model), options, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    if (!session) return out;
    EXPECT_EQ((*session)->report().chunk, chunk);
    EXPECT_TRUE((*session)->feed(std::vector{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
    EXPECT_TRUE((*session)->rollback(2));
    EXPECT_TRUE((*session)->feed(prompt));
    EXPECT_EQ((*session)->length(), 23);
    const auto logits = (*session)->logits();
    EXPECT_TRUE(logits) << logits.error().text();
    if (logits) out.logits.assign(logits->begin(), logits->end());
    out.ids.resize(4);
    EXPECT_TRUE((*session)->generate((*session)->sampled().value(), out.ids));
  }
  for (const std::string& violation : fake.violations()) ADD_FAILURE() << violation;
  return out;
}

void expect_close(const TinyModel& model, ExecutorKind executor, Format kv) {
  SCOPED_TRACE(model.architecture + ", " + executor_name(executor) + ", " + row(kv).name);
  const Read expected = read_prompt(model, ExecutorKind::graph, kv, 0);
  const Read actual = read_prompt(model, executor, kv, 8);
  ASSERT_EQ(actual.logits.size(), expected.logits.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.logits.size(); ++i) {
    const double difference = static_cast<double>(actual.logits[i]) - expected.logits[i];
    error += difference * difference;
    norm += static_cast<double>(expected.logits[i]) * expected.logits[i];
  }
  EXPECT_LE(std::sqrt(error / norm), 2e-3);
  EXPECT_EQ(actual.ids, expected.ids);
}

TEST(EmulatedPrefill, LeavesWhatDecodingLeaves) {
  const Format caches[] = {Format::f16, Format::f32, Format::q8_0, Format::f16};
  int i = 0;
  for (TinyModel model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()}) {
    model.layers = 2;
    expect_close(fusible(model), i % 2 ? ExecutorKind::mega : ExecutorKind::graph, caches[i]);
    ++i;
  }
  expect_close(model_shape(2), ExecutorKind::eager, Format::f16);  // q4_k and q6_k
  expect_close(fusible(tiny_llama(), Format::q5_1), ExecutorKind::mega, Format::f32);
}

// The tokens of a prompt are recent ones however they were read.
TEST(EmulatedPrefill, TheRepeatPenaltySeesThePrompt) {
  const auto text = [](int chunk) {
    FakeDriver fake(emulated(3, verification::fresh_seed()));
    SessionOptions options = emulated_options(ExecutorKind::mega);
    options.plan.chunk = chunk;
    const auto session =
        open_session(make_model(fusible(tiny_llama())), options, fake.platform()).value();
    EXPECT_TRUE(session->set_sampling({.repeat_penalty = 10, .repeat_last = 256}));
    std::vector<std::int32_t> prompt(20), ids(6);
    for (int i = 0; i < 20; ++i) prompt[static_cast<std::size_t>(i)] = 2 * i;
    EXPECT_TRUE(session->feed(prompt));
    EXPECT_TRUE(session->generate(session->sampled().value(), ids));
    return ids;
  };
  const std::vector<std::int32_t> expected = text(0);
  EXPECT_EQ(text(16), expected);
}

TEST(EmulatedPrefill, WhatIsRefusedIsRefusedBeforeAnyLaunch) {
  FakeDriver fake(emulated(3, 1));
  const auto session = open_session(make_model(fusible(tiny_llama())),
                                    emulated_options(ExecutorKind::graph), fake.platform())
                           .value();
  EXPECT_EQ(session->report().chunk, 32);  // no more than the context
  std::vector<std::int32_t> prompt(33, 1);
  EXPECT_FALSE(session->feed(prompt));
  prompt.resize(20);
  prompt[19] = 80;
  EXPECT_FALSE(session->feed(prompt));
  EXPECT_EQ(session->length(), 0);
  EXPECT_FALSE(session->logits());
  prompt[19] = 79;
  EXPECT_TRUE(session->feed(prompt));
  EXPECT_EQ(session->length(), 20);
}

TEST(EmulatedPrefill, TheNotesSayWhyThereIsNone) {
  FakeDriver fake(emulated(3, 1));
  TinyModel model = fusible(tiny_llama());
  model.head_dim = model.rotary = 40;
  const auto session =
      open_session(make_model(model), emulated_options(ExecutorKind::graph), fake.platform())
          .value();
  EXPECT_EQ(session->report().chunk, 0);
  const auto& notes = session->report().notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note.starts_with("prompts are read token by token: head_dim is 40");
  }));
  EXPECT_TRUE(session->feed(std::vector<std::int32_t>(12, 3)));
  EXPECT_EQ(session->length(), 12);
}

}  // namespace
}  // namespace lathe::testing
