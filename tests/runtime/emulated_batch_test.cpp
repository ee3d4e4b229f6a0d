// Owns the proof without a GPU that a batch computes what a session does, and for each sequence
// what it would alone: on the fake driver, whose kernels here are the device code itself, emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "lathe/runtime/batch.h"
#include "lathe/runtime/drafts.h"
#include "runtime/session_base.h"
#include "tests/runtime/batch_schedule.h"
#include "tests/runtime/emulated_batches.h"

namespace lathe::testing {

using verification::Random;

namespace {

class EmulatedBatch : public EmulatedBatches<::testing::Test> {
 protected:
  std::unique_ptr<Batch> open(const BatchOptions& options, int layers = 2) {
    return open_batch_of(layers, options);
  }
};

TEST_F(EmulatedBatch, LogitsAreThoseOfASession) {
  SessionOptions options = emulated_batch_options(Format::f16).session;
  options.plan.fusion = Fusion::full;
  const auto session = open_session(make_model(), options, fake_.platform());
  ASSERT_TRUE(session) << session.error().text();
  const auto batch = open(emulated_batch_options(Format::f16));
  ASSERT_TRUE(batch);
  const int other = batch->join().value(), sequence = batch->join().value();
  const std::vector<std::int32_t> prompt = {3, 7, 1, 30, 12};
  ASSERT_TRUE(batch->feed(sequence, prompt));
  for (const std::int32_t token : prompt) ASSERT_TRUE((*session)->step(token));
  for (std::int32_t token : {5, 9, 2}) {
    ASSERT_TRUE((*session)->step(token));
    const BatchRow rows[] = {{other, 4}, {sequence, token}};
    ASSERT_TRUE(batch->step(rows));
    const auto expected = (*session)->logits(), actual = batch->logits(1);
    ASSERT_TRUE(expected && actual);
    ASSERT_EQ(expected->size(), actual->size());
    // Weights and vectors are rounded to f16 on their way to the products.
    float greatest = 0, error = 0;
    for (std::size_t i = 0; i < expected->size(); ++i) {
      greatest = std::max(greatest, std::fabs((*expected)[i]));
      error = std::max(error, std::fabs((*expected)[i] - (*actual)[i]));
    }
    EXPECT_LE(error, 1e-2f * greatest) << "seed " << seed_;
  }
}

TEST_F(EmulatedBatch, ASequenceGetsWhatItGetsAlone) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Random random(seed_);
  for (const Format kv : {Format::f16, Format::q8_0}) {
    const auto batch = open(emulated_batch_options(kv), 1);
    ASSERT_TRUE(batch);
    run_schedule(*batch, random, 16);
  }
}

// A step of the most rows, and on what it wrote one of a row more than three groups of eight. Rows
// of the sequences alternate.
TEST_F(EmulatedBatch, InAStepOf32RowsASequenceGetsWhatItGetsAlone) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Random random(seed_);
  using Counts = std::array<int, 5>;  // rows of each sequence
  for (const Format kv : {Format::f16, Format::q8_0}) {
    BatchOptions options = emulated_batch_options(kv);
    options.rows = 32;
    options.sequences = 5;
    const auto batch = open(options, 1);
    ASSERT_TRUE(batch);
    const int vocab = batch->plan().spec.vocab;
    const auto draw = [&](int count) {
      std::vector<std::int32_t> tokens(std::size_t(count), 0);
      for (std::int32_t& token : tokens) token = random.below(vocab);
      return tokens;
    };
    struct Known {
      Sampling sampling = {};
      std::vector<std::int32_t> prompt = {}, tokens = {}, chosen = {};
      std::vector<std::vector<float>> logits = {};
    };
    std::map<int, Known> all;
    for (int i = 0; i < 5; ++i) {
      Known known{.prompt = draw(1 + 4 * i)};
      if (i % 2 == 1) known.sampling = {.temperature = 1, .repeat_penalty = 1.2f, .seed = 5};
      const int sequence = batch->join(known.sampling).value();
      ASSERT_TRUE(batch->feed(sequence, known.prompt));
      all[sequence] = std::move(known);
    }
    for (const Counts& counts : {Counts{4, 1, 7, 8, 12}, Counts{1, 9, 2, 7, 6}}) {
      std::vector<BatchRow> rows;
      for (int round = 0; round < 12; ++round) {
        for (auto& [sequence, known] : all) {
          if (round >= counts[std::size_t(sequence)]) continue;
          known.tokens.push_back(random.below(vocab));
          rows.push_back({sequence, known.tokens.back()});
        }
      }
      ASSERT_EQ(std::ssize(rows), std::accumulate(counts.begin(), counts.end(), 0));
      const auto chosen = batch->step(rows);
      ASSERT_TRUE(chosen) << chosen.error().text();
      for (int row = 0; row < int(rows.size()); ++row) {
        Known& of = all[rows[std::size_t(row)].sequence];
        const auto logits = batch->logits(row).value();
        of.chosen.push_back((*chosen)[std::size_t(row)]);
        of.logits.emplace_back(logits.begin(), logits.end());
      }
    }
    for (const auto& [sequence, known] : all) ASSERT_TRUE(batch->leave(sequence));
    for (const auto& [sequence, known] : all) {
      const int alone = batch->join(known.sampling).value();
      ASSERT_TRUE(batch->feed(alone, known.prompt));
      for (std::size_t i = 0; i < known.tokens.size(); ++i) {
        const BatchRow row{alone, known.tokens[i]};
        EXPECT_EQ(batch->step({&row, 1})->front(), known.chosen[i]) << sequence << ", " << i;
        EXPECT_TRUE(std::ranges::equal(batch->logits(0).value(), known.logits[i]))
            << sequence << ", " << i;
      }
      ASSERT_TRUE(batch->leave(alone));
    }
  }
}

// Drafts of all kinds: none, those that are chosen, others, too many, and what is no token.
TEST_F(EmulatedBatch, DraftsChangeNoToken) {
  const auto batch = open(emulated_batch_options(Format::f16), 1);
  ASSERT_TRUE(batch);
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 3}}) {
    const std::vector<std::int32_t> prompt = {3, 7, 3, 7, 3};
    std::vector<std::int32_t> plain(12), drafted(12);
    const int alone = batch->join(sampling).value();
    ASSERT_TRUE(batch->feed(alone, prompt));
    std::int32_t token = 7;
    for (std::int32_t& chosen : plain) {
      const BatchRow row{alone, token};
      chosen = token = batch->step({&row, 1})->front();
    }
    ASSERT_TRUE(batch->leave(alone));
    const Drafter oracle = [&](std::span<const std::int32_t> known, int most) {
      std::vector<std::int32_t> drafts;
      for (std::size_t i = known.size() - 6; i < plain.size() && std::ssize(drafts) < most; ++i)
        drafts.push_back(i % 5 == 4 ? plain[i] + 1 : plain[i]);
      return drafts;
    };
    const Drafter absurd = [](std::span<const std::int32_t>, int most) {
      return std::vector<std::int32_t>(std::size_t(most + 3), -5);
    };
    for (const Drafter& drafter : {Drafter(LookupDrafts{}), oracle, absurd}) {
      for (const int most : {1, 15}) {
        const int sequence = batch->join(sampling).value();
        ASSERT_TRUE(batch->feed(sequence, prompt));
        const auto counts = generate_with_drafts(*batch, sequence, 7, drafted, drafter, most);
        ASSERT_TRUE(counts) << counts.error().text();
        EXPECT_EQ(drafted, plain) << most;
        EXPECT_EQ(counts->steps + counts->accepted, 12);
        EXPECT_EQ(batch->length(sequence).value(), 17);
        ASSERT_TRUE(batch->leave(sequence));
      }
    }
  }
}

// The same model drafts what is chosen; one of other weights, and one whose context is short, do
// not.
TEST_F(EmulatedBatch, AModelDraftsForAnother) {
  const auto batch = open(emulated_batch_options(Format::f16), 1);
  const auto other = open(emulated_batch_options(Format::f16), 2);
  BatchOptions short_options = emulated_batch_options(Format::f16);
  short_options.session.plan.context = 10;
  const auto brief = open(short_options, 1);
  ASSERT_TRUE(batch && other && brief);
  const std::vector<std::int32_t> prompt = {3, 7, 1, 30, 12};
  std::vector<std::int32_t> plain(8), drafted(8);
  const auto generate = [&](std::span<std::int32_t> tokens, const Drafter& drafter) {
    const int sequence = batch->join().value();
    EXPECT_TRUE(batch->feed(sequence, prompt));
    const auto counts = generate_with_drafts(*batch, sequence, 9, tokens, drafter, 3);
    EXPECT_TRUE(counts) << counts.error().text();
    EXPECT_TRUE(batch->leave(sequence));
    return counts ? *counts : DraftCounts{};
  };
  generate(plain, [](std::span<const std::int32_t>, int) { return std::vector<std::int32_t>(); });
  for (Batch* model : {batch.get(), other.get(), brief.get()}) {
    const auto drafts = ModelDrafts::open(*model);
    ASSERT_TRUE(drafts) << drafts.error().text();
    for (int time = 0; time < 2; ++time) {
      const DraftCounts counts = generate(drafted, std::ref(**drafts));
      EXPECT_EQ(drafted, plain) << "seed " << seed_;
      if (model == batch.get()) {
        EXPECT_EQ(counts.accepted, counts.drafted);
      }
      EXPECT_GT(counts.drafted, 0);
      EXPECT_EQ(bool((*drafts)->outcome()), model != brief.get());
    }
  }
}

TEST(LookupDrafts, AreWhatFollowedTheSameEnd) {
  using Tokens = std::vector<std::int32_t>;
  const LookupDrafts drafts{.longest = 3};
  EXPECT_EQ(drafts(Tokens{}, 4), Tokens{});
  EXPECT_EQ(drafts(Tokens{1, 2, 3}, 4), Tokens{});
  EXPECT_EQ(drafts(Tokens{1, 2, 3, 1}, 7), (Tokens{2, 3, 1, 2, 3, 1, 2}));
  EXPECT_EQ(drafts(Tokens{1, 2, 3, 1}, 2), (Tokens{2, 3}));
  EXPECT_EQ(drafts(Tokens{5, 1, 2, 8, 9, 7, 1, 2, 6, 5, 1, 2}, 2), (Tokens{8, 9}));
  EXPECT_EQ(drafts(Tokens{1, 2, 8, 3, 2, 6, 4, 2}, 1), Tokens{6});
  EXPECT_EQ(drafts(Tokens{4, 4}, 3), (Tokens{4, 4, 4}));
  EXPECT_EQ(drafts(Tokens{4, 4}, 0), Tokens{});
}

// The row's own rules, among what is allowed; and those of a step that drew.
TEST_F(EmulatedBatch, ARowIsChosenFromWhatIsAllowed) {
  const auto batch = open(emulated_batch_options(Format::f16), 1);
  ASSERT_TRUE(batch);
  const int greedy = batch->join().value();
  const int drawing = batch->join({.temperature = 2, .repeat_penalty = 1.5f, .seed = 4}).value();
  const std::vector<std::uint32_t> odd(token_set_words(batch->plan().spec.vocab), 0xaaaaaaaau);
  std::vector<std::int32_t> tokens = {3, 9, 5};
  for (int i = 0; i < 4; ++i) {
    const BatchRow rows[] = {{greedy, tokens[0]}, {drawing, tokens[1]}, {drawing, tokens[2]}};
    const auto chosen = batch->step(rows).value();
    for (int row = 0; row < 3; ++row) {
      EXPECT_EQ(batch->choose(row, {}).value(), chosen[std::size_t(row)]);
      tokens[std::size_t(row)] = batch->choose(row, odd).value();
      EXPECT_EQ(tokens[std::size_t(row)] % 2, 1);
    }
    EXPECT_EQ(tokens[0], likeliest_token(batch->logits(0).value(), odd).value());
  }
  const std::vector<std::uint32_t> none(odd.size());
  EXPECT_EQ(batch->choose(0, none).value(), -1);
  EXPECT_EQ(batch->choose(3, odd).error().code, Code::out_of_range);
  EXPECT_EQ(batch->choose(0, TokenSet(odd).first(1)).error().code, Code::invalid_argument);
}

// From one sequence to another, of a session to a batch and back, and past a neighbour unharmed.
TEST_F(EmulatedBatch, SnapshotsGoBetweenSequencesAndSessions) {
  const std::vector<std::int32_t> prompt = {3, 7, 1, 30, 12};
  for (const Format kv : {Format::f16, Format::q8_0}) {
    SessionOptions options = emulated_batch_options(kv).session;
    options.plan.fusion = Fusion::full;
    const auto session = open_session(make_model(1), options, fake_.platform()).value();
    for (const std::int32_t token : prompt) ASSERT_TRUE(session->step(token));
    const KvSnapshot snapshot = session->snapshot(5).value();

    const auto batch = open(emulated_batch_options(kv), 1);
    ASSERT_TRUE(batch);
    const int first = batch->join().value(), neighbour = batch->join().value();
    const int last = batch->join().value();
    ASSERT_TRUE(batch->feed(neighbour, std::vector<std::int32_t>(18, 11)));
    const auto width = std::size_t(session->plan().spec.kv_heads * session->plan().spec.head_dim);
    const auto keys = [&](int sequence, int positions) {
      std::vector<float> values(std::size_t(positions) * width);
      EXPECT_TRUE(batch->read_kv(sequence, {KvPart::keys, 0, 0, positions}, values));
      return values;
    };
    const std::vector<float> untouched = keys(neighbour, 18);
    ASSERT_TRUE(batch->feed(last, std::vector<std::int32_t>(9, 2)));
    for (const int sequence : {first, last}) ASSERT_TRUE(batch->restore(sequence, snapshot));
    EXPECT_EQ(batch->length(last).value(), 5);
    EXPECT_EQ(std::vector(batch->tokens(last)->begin(), batch->tokens(last)->end()), prompt);
    std::vector<float> of_session(5 * width);
    ASSERT_TRUE(session->read_kv({KvPart::keys, 0, 0, 5}, of_session));
    EXPECT_EQ(keys(first, 5), of_session);
    EXPECT_EQ(keys(last, 5), of_session);
    const BatchRow rows[] = {{first, 8}, {neighbour, 8}, {last, 8}};
    ASSERT_TRUE(batch->step(rows));
    const std::vector<float> logits(batch->logits(0)->begin(), batch->logits(0)->end());
    EXPECT_TRUE(std::ranges::equal(batch->logits(2).value(), logits));
    EXPECT_EQ(keys(neighbour, 18), untouched);

    // What is written is what the next step attends to.
    ASSERT_TRUE(batch->rollback(last, 5) && batch->rollback(first, 5));
    std::vector<float> halved = of_session;
    for (float& value : halved) value /= 2;
    ASSERT_TRUE(batch->write_kv(last, {KvPart::keys, 0, 0, 5}, halved));
    ASSERT_TRUE(batch->step(rows));
    EXPECT_TRUE(std::ranges::equal(batch->logits(0).value(), logits));
    EXPECT_FALSE(std::ranges::equal(batch->logits(2).value(), logits));

    const KvSnapshot back = batch->snapshot(first, 5).value();
    ASSERT_TRUE(session->step(8));
    const std::int32_t expected = session->sampled().value();
    ASSERT_TRUE(session->restore(back));
    ASSERT_TRUE(session->step(8));
    EXPECT_EQ(session->sampled().value(), expected);
    EXPECT_EQ(batch->snapshot(first, 7).error().code, Code::out_of_range);
    EXPECT_EQ(batch->restore(3, snapshot).error().code, Code::invalid_argument);
  }
}

TEST_F(EmulatedBatch, AFailedStepCanBeTakenAgain) {
  const auto batch = open(emulated_batch_options(Format::f16), 1);
  ASSERT_TRUE(batch);
  const int disturbed = batch->join({.temperature = 1, .repeat_penalty = 1.3f, .seed = 4}).value();
  const int quiet = batch->join({.temperature = 1, .repeat_penalty = 1.3f, .seed = 4}).value();
  std::vector<std::int32_t> expected;
  for (const std::int32_t token : {5, 6, 7}) {
    const BatchRow row{quiet, token};
    expected.push_back(batch->step({&row, 1})->front());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const BatchRow row{disturbed, std::int32_t(5 + i)};
    // In the check of the stream, the copy, the launch, the copy back and the wait for it.
    for (int call = 1; call <= 5; ++call) {
      fake_.fail_call(call, CUDA_ERROR_UNKNOWN);
      if (batch->step({&row, 1})) {
        ASSERT_TRUE(batch->rollback(disturbed, int(i)));
      }
      EXPECT_EQ(batch->length(disturbed).value(), int(i)) << call;
      EXPECT_FALSE(batch->logits(1));
    }
    EXPECT_EQ(batch->step({&row, 1})->front(), expected[i]);
  }
  // Rows that a feed left are not the last step's.
  ASSERT_TRUE(batch->feed(disturbed, std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(batch->logits(0).error().code, Code::out_of_range);
}

TEST_F(EmulatedBatch, WhatIsWrongIsRefusedBeforeAnythingIsLaunched) {
  const auto batch = open(emulated_batch_options(Format::f16), 1);
  ASSERT_TRUE(batch);
  const int sequence = batch->join().value();
  const auto code = [&](std::vector<BatchRow> rows) { return batch->step(rows).error().code; };
  EXPECT_EQ(code({}), Code::out_of_range);
  EXPECT_EQ(code(std::vector<BatchRow>(25, BatchRow{sequence, 1})), Code::out_of_range);
  EXPECT_EQ(code({{sequence, -1}}), Code::out_of_range);
  EXPECT_EQ(code({{sequence, 1}, {sequence, batch->plan().spec.vocab}}), Code::out_of_range);
  EXPECT_EQ(code({{sequence + 1, 1}}), Code::invalid_argument);
  EXPECT_EQ(batch->length(sequence).value(), 0);
  ASSERT_TRUE(batch->feed(sequence, std::vector<std::int32_t>(60, 1)));
  EXPECT_EQ(code(std::vector<BatchRow>(5, BatchRow{sequence, 1})), Code::out_of_range);
  EXPECT_EQ(batch->feed(sequence, std::vector<std::int32_t>(5, 1)).error().code,
            Code::out_of_range);
  EXPECT_EQ(batch->rollback(sequence, 61).error().code, Code::out_of_range);
  EXPECT_EQ(batch->copy(sequence, 2, 1).error().code, Code::invalid_argument);
  EXPECT_EQ(batch->length(sequence).value(), 60);
  ASSERT_TRUE(batch->join() && batch->join());
  EXPECT_EQ(batch->join().error().code, Code::out_of_range);
  EXPECT_EQ(batch->logits(0).error().code, Code::out_of_range);

  BatchOptions options = emulated_batch_options(Format::f16);
  options.session.executor = ExecutorKind::mega;
  const auto refused = open_batch(make_model(), options, fake_.platform());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::not_eligible);
  options = emulated_batch_options(Format::f16);
  const auto unfused = open_batch(make_model(tiny_llama()), options, fake_.platform());
  ASSERT_FALSE(unfused);
  EXPECT_EQ(unfused.error().code, Code::not_eligible);
  EXPECT_NE(unfused.error().message.find("f32 weights have no tiled layout"), std::string::npos)
      << unfused.error().message;
  options.rows = 33;
  EXPECT_EQ(open_batch(make_model(), options, fake_.platform()).error().code,
            Code::invalid_argument);
}

}  // namespace
}  // namespace lathe::testing
