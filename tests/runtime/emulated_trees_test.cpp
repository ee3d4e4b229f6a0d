// Owns the proof without a GPU that trees of drafts change no token, and of the copies that they
// are made with, in a row and in pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lathe/runtime/draft_trees.h"
#include "runtime/session_base.h"
#include "tests/runtime/emulated_batches.h"

namespace lathe::testing {
namespace {

using Tokens = std::vector<std::int32_t>;
using Tree = std::vector<TreeDraft>;

const Tokens kPrompt = {3, 7, 3, 7, 3};
constexpr std::int32_t kFirst = 7;

// With so many pages; 0: with positions in a row.
class EmulatedTrees : public EmulatedBatches<::testing::TestWithParam<int>> {
 protected:
  std::unique_ptr<Batch> open(int sequences) {
    BatchOptions options = emulated_batch_options(Format::f16);
    options.sequences = sequences;
    options.kv_pages = GetParam();
    return open_batch_of(1, options);
  }
};

int join(Batch& batch, const Sampling& sampling) {
  const int sequence = batch.join(sampling).value();
  EXPECT_TRUE(batch.feed(sequence, kPrompt));
  return sequence;
}

// Row by row.
Tokens plain_tokens(Batch& batch, const Sampling& sampling, int count) {
  const int sequence = join(batch, sampling);
  Tokens tokens(static_cast<std::size_t>(count));
  std::int32_t token = kFirst;
  for (std::int32_t& chosen : tokens) {
    const BatchRow row{sequence, token};
    chosen = token = batch.step({&row, 1})->front();
  }
  EXPECT_TRUE(batch.leave(sequence));
  return tokens;
}

// What is chosen, behind a path of what is not and before another: always a fork of it is right.
Tree around(const Tokens& plain, std::size_t at, int depth) {
  Tree tree = {{(plain[at] + 1) % 160, -1}};
  tree.push_back({(plain[at] + 2) % 160, 0});
  int parent = -1;
  for (int i = 0; i < depth && at + std::size_t(i) < plain.size(); ++i) {
    tree.push_back({plain[at + std::size_t(i)], parent});
    parent = int(tree.size()) - 1;
    if (i == 1) tree.push_back({(plain[at] + 5) % 160, parent});  // a leaf on the way
  }
  return tree;
}

TEST_P(EmulatedTrees, ChangeNoToken) {
  const auto batch = open(5);
  ASSERT_TRUE(batch);
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 1, .repeat_penalty = 1.3f, .seed = 3}}) {
    const Tokens plain = plain_tokens(*batch, sampling, 12);
    const TreeDrafter right = [&](std::span<const std::int32_t> known, int) {
      return around(plain, known.size() - kPrompt.size() - 1, 4);
    };
    const TreeDrafter absurd = [](std::span<const std::int32_t>, int most) {
      return Tree(std::size_t(most + 3), TreeDraft{5, 40});
    };
    for (const TreeDrafter& drafter : {right, TreeDrafter(LookupTrees{}), absurd}) {
      for (const int paths : {1, 3}) {
        const int sequence = join(*batch, sampling);
        Tokens drafted(plain.size(), -7);
        const auto counts =
            generate_with_trees(*batch, sequence, kFirst, drafted, drafter, 12, paths);
        ASSERT_TRUE(counts) << counts.error().text();
        EXPECT_EQ(drafted, plain) << paths;
        EXPECT_EQ(counts->drafts.steps + counts->drafts.accepted, 12);
        EXPECT_EQ(batch->length(sequence).value(), 17);
        const auto known = batch->tokens(sequence).value();
        EXPECT_TRUE(std::equal(plain.begin(), plain.end() - 1, known.begin() + 6));
        // The keys and values that were moved are what plain steps leave: it goes on as they do.
        EXPECT_TRUE(batch->leave(sequence));
        for (int i = 0; i < 5; ++i) EXPECT_FALSE(batch->length(i)) << "one stayed behind";
      }
    }
  }
}

// The path that is right is not the first.
TEST_P(EmulatedTrees, TheLongestPathIsKeptWhichever) {
  const auto batch = open(4);
  ASSERT_TRUE(batch);
  const Tokens plain = plain_tokens(*batch, {}, 10);
  const auto run = [&](int paths) {
    const int sequence = join(*batch, {});
    Tokens drafted(plain.size());
    const auto counts = generate_with_trees(
        *batch, sequence, kFirst, drafted,
        [&](std::span<const std::int32_t> known, int) {
          return around(plain, known.size() - kPrompt.size() - 1, 4);
        },
        16, paths);
    EXPECT_TRUE(counts) << counts.error().text();
    EXPECT_EQ(drafted, plain);
    // What comes after is what comes after plain steps.
    Tokens rest(4), expected(4);
    const int alone = join(*batch, {});
    Tokens before = {kFirst};
    before.insert(before.end(), plain.begin(), plain.end() - 1);
    for (const std::int32_t token : before) {
      const BatchRow row{alone, token};
      EXPECT_TRUE(batch->step({&row, 1}));
    }
    std::int32_t a = plain.back(), b = plain.back();
    for (int i = 0; i < 4; ++i) {
      const BatchRow rows[] = {{alone, a}, {sequence, b}};
      const auto chosen = batch->step(rows).value();
      EXPECT_EQ(chosen[0], chosen[1]) << i;
      a = chosen[0];
      b = chosen[1];
    }
    EXPECT_TRUE(batch->leave(sequence) && batch->leave(alone));
    return *counts;
  };
  const TreeCounts one = run(1), all = run(3);
  EXPECT_EQ(one.drafts.accepted, 0);
  EXPECT_EQ(one.moved, 0);
  EXPECT_GT(all.drafts.accepted, 5);
  EXPECT_GT(all.moved, 0);
  EXPECT_LT(all.drafts.steps, one.drafts.steps);
}

TEST_P(EmulatedTrees, ForksAndPartsOfCopies) {
  const auto batch = open(3);
  ASSERT_TRUE(batch);
  const Sampling drawn{.temperature = 1, .seed = 5};
  const int a = join(*batch, drawn);
  const int b = batch->fork(a).value(), c = batch->fork(a).value();
  EXPECT_EQ(batch->fork(a).error().code, Code::out_of_range);
  std::int32_t token = 9;
  for (int i = 0; i < 6; ++i) {
    const BatchRow rows[] = {{a, token}, {b, token}};
    const auto chosen = batch->step(rows).value();
    ASSERT_EQ(chosen[0], chosen[1]);
    token = chosen[0];
  }
  // The third gets what it has not.
  ASSERT_TRUE(batch->copy(a, c, 11, 5));
  EXPECT_TRUE(std::ranges::equal(batch->tokens(c).value(), batch->tokens(a).value()));
  const BatchRow rows[] = {{a, token}, {c, token}};
  const auto chosen = batch->step(rows).value();
  EXPECT_EQ(chosen[0], chosen[1]);
  for (const auto& [length, first] : {std::pair(5, 6), std::pair(5, -1), std::pair(40, 0)})
    EXPECT_EQ(batch->copy(a, c, length, first).error().code, Code::out_of_range);
  ASSERT_TRUE(batch->rollback(c, 2));
  EXPECT_EQ(batch->copy(a, c, 11, 3).error().code, Code::out_of_range);
  EXPECT_EQ(batch->length(c).value(), 2);
}

TEST_P(EmulatedTrees, WhatMakesNoSenseIsRefused) {
  const auto batch = open(2);
  ASSERT_TRUE(batch);
  const int sequence = join(*batch, {});
  Tokens tokens(3);
  const auto refused = [&](int of, const TreeDrafter& drafter, int most, int paths) {
    const auto result = generate_with_trees(*batch, of, kFirst, tokens, drafter, most, paths);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::invalid_argument) << result.error().text();
    EXPECT_EQ(batch->length(sequence).value(), 5);
  };
  refused(sequence, LookupTrees{}, -1, 2);
  refused(sequence, LookupTrees{}, 4, 0);
  refused(sequence, LookupTrees{}, 4, 33);
  refused(sequence, {}, 4, 2);
  refused(1, LookupTrees{}, 4, 2);
  EXPECT_TRUE(generate_with_trees(*batch, sequence, kFirst, tokens, {}, 0, 1));
}

INSTANTIATE_TEST_SUITE_P(Pages, EmulatedTrees, ::testing::Values(0, 10));

TEST(LookupTrees, HaveTheWaysThatTheTextWentOn) {
  const auto tree = [](const Tokens& text, int most, int paths) {
    std::string out;
    for (const TreeDraft& draft : LookupTrees{.longest = 2, .paths = paths}(text, most))
      out += std::to_string(draft.token) + "<" + std::to_string(draft.parent) + " ";
    return out;
  };
  //                1 2 went on with 5 6, then with 5 7, last with 8
  const Tokens text = {1, 2, 5, 6, 1, 2, 5, 7, 1, 2, 8, 9, 1, 2};
  EXPECT_EQ(tree(text, 6, 3), "8<-1 9<0 5<-1 7<2 6<2 ");
  EXPECT_EQ(tree(text, 6, 1), "8<-1 9<0 1<1 2<2 ");
  EXPECT_EQ(tree(text, 3, 3), "8<-1 5<-1 ");
  EXPECT_EQ(tree(text, 0, 3), "");
  EXPECT_EQ(tree({1}, 6, 3), "");
  EXPECT_EQ(tree({}, 6, 3), "");
}

}  // namespace
}  // namespace lathe::testing
