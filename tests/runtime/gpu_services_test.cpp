// Holds the services of sessions and batches on a real GPU to those of the cpu executor and to each
// other. Skipped with the reason where there is no GPU.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lathe/runtime/batch.h"
#include "lathe/runtime/draft_trees.h"
#include "tests/runtime/relative_error.h"
#include "tests/runtime/session_services.h"
#include "tests/runtime/shared_gpu.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

struct Case {
  ExecutorKind executor;
  Format kv;
};
constexpr Case kCases[] = {{ExecutorKind::eager, Format::f32},
                           {ExecutorKind::graph, Format::f16},
                           {ExecutorKind::graph, Format::q8_0},
                           {ExecutorKind::automatic, Format::f16},
                           {ExecutorKind::automatic, Format::q8_0}};

class GpuServices : public SharedGpu {
 protected:
  SessionOptions options_for(ExecutorKind executor, Format kv) const {
    SessionOptions options;
    options.executor = executor;
    options.plan.context = 64;
    options.plan.kv = kv;
    if (executor != ExecutorKind::cpu) options.kernels = device_;
    if (kv == Format::q8_0) options.plan.fusion = Fusion::full;
    return options;
  }
  // Null where this device has no such kernels.
  std::unique_ptr<Session> open(ExecutorKind executor, Format kv) const {
    auto session = Session::open(file_, options_for(executor, kv));
    if (session) return std::move(*session);
    EXPECT_EQ(session.error().code, Code::not_eligible) << session.error().text();
    return nullptr;
  }

  std::shared_ptr<const GgufFile> file_ = make_model();
};

TEST_F(GpuServices, HoldWithEveryExecutorAndFormat) {
  for (const auto& [executor, kv] : kCases) {
    SCOPED_TRACE(std::string(executor_name(executor)) + ", " + row(kv).name);
    const auto session = open(executor, kv), other = open(executor, kv);
    if (session && other) expect_services(*session, *other);
  }
}

// The oracles put the same numbers into the cache, up to the roundings of the format.
TEST_F(GpuServices, KeysAndValuesAreTheOracles) {
  for (const auto& [executor, kv] : kCases) {
    SCOPED_TRACE(std::string(executor_name(executor)) + ", " + row(kv).name);
    const auto session = open(executor, kv);
    if (!session) continue;
    const auto cpu = open(ExecutorKind::cpu, kv);
    ASSERT_TRUE(cpu);
    for (const std::int32_t token : {3, 50, 7, 7, 21})
      ASSERT_TRUE(session->step(token) && cpu->step(token));
    const KvCapture found = session->capture_kv(5, 1000).value();
    const KvCapture expected = cpu->capture_kv(5, 1000).value();
    for (const auto& [a, b] :
         {std::pair(&found.keys, &expected.keys), std::pair(&found.values, &expected.values)}) {
      ASSERT_EQ(a->size(), b->size());
      EXPECT_LE(relative_error(*a, *b), kv == Format::q8_0 ? 2e-2 : 2e-3);
    }
  }
}

TEST_F(GpuServices, ABatchTakesASessionsPrefixAndChooses) {
  BatchOptions options;
  options.session = options_for(ExecutorKind::graph, Format::f16);
  options.sequences = 2;
  const auto opened = Batch::open(file_, options);
  if (!opened && opened.error().code == Code::not_eligible) GTEST_SKIP() << opened.error().text();
  ASSERT_TRUE(opened) << opened.error().text();
  Batch& batch = **opened;
  const auto session = open(ExecutorKind::graph, Format::f16);
  ASSERT_TRUE(session);
  for (const std::int32_t token : {3, 50, 7, 7, 21}) ASSERT_TRUE(session->step(token));
  const int a = batch.join().value(), b = batch.join({.temperature = 1, .seed = 3}).value();
  const KvSnapshot snapshot = session->snapshot(5).value();
  ASSERT_TRUE(batch.restore(a, snapshot) && batch.restore(b, snapshot));
  const int width = batch.plan().spec.kv_heads * batch.plan().spec.head_dim;
  Floats expected(std::size_t(5 * width)), found(expected.size());
  const KvRange range{KvPart::values, 1, 0, 5};
  ASSERT_TRUE(session->read_kv(range, expected) && batch.read_kv(b, range, found));
  EXPECT_EQ(found, expected);
  const std::vector<std::uint32_t> odd(token_set_words(batch.plan().spec.vocab), 0xaaaaaaaau);
  std::int32_t tokens[] = {9, 9};
  for (int i = 0; i < 8; ++i) {
    const BatchRow rows[] = {{a, tokens[0]}, {b, tokens[1]}};
    const auto chosen = batch.step(rows);
    ASSERT_TRUE(chosen) << chosen.error().text();
    for (int row = 0; row < 2; ++row) {
      tokens[row] = (*chosen)[std::size_t(row)];
      EXPECT_EQ(batch.choose(row, {}).value(), tokens[row]);
      EXPECT_EQ(batch.choose(row, odd).value() % 2, 1);
    }
  }
}

// Plain steps give the same tokens as trees do whose right path is not the first.
TEST_F(GpuServices, TreesOfDraftsChangeNoToken) {
  BatchOptions options;
  options.session = options_for(ExecutorKind::graph, Format::f16);
  options.sequences = 4;
  const auto opened = Batch::open(file_, options);
  if (!opened && opened.error().code == Code::not_eligible) GTEST_SKIP() << opened.error().text();
  ASSERT_TRUE(opened) << opened.error().text();
  Batch& batch = **opened;
  for (const Sampling& rules : {Sampling{}, Sampling{.temperature = 1, .seed = 3}}) {
    const std::vector<std::int32_t> prompt = {3, 50, 7, 7, 21};
    std::vector<std::int32_t> plain(24), found(24);
    const auto generate = [&](std::span<std::int32_t> tokens, const TreeDrafter& drafter) {
      const int sequence = batch.join(rules).value();
      EXPECT_TRUE(batch.feed(sequence, prompt));
      const auto counts = generate_with_trees(batch, sequence, 9, tokens, drafter, 12);
      EXPECT_TRUE(counts) << counts.error().text();
      EXPECT_TRUE(batch.leave(sequence));
      return counts ? *counts : TreeCounts{};
    };
    generate(plain, [](std::span<const std::int32_t>, int) { return std::vector<TreeDraft>(); });
    const TreeCounts counts = generate(found, [&](std::span<const std::int32_t> known, int) {
      const std::size_t at = known.size() - prompt.size() - 1;
      std::vector<TreeDraft> tree = {{(plain[at] + 1) % 160, -1}, {plain[at], -1}};
      for (std::size_t i = 1; i < 4 && at + i < plain.size(); ++i) {
        tree.push_back({plain[at + i], int(tree.size()) - 1});
      }
      return tree;
    });
    EXPECT_EQ(found, plain);
    EXPECT_EQ(counts.drafts.steps + counts.drafts.accepted, 24);
    EXPECT_GT(counts.drafts.accepted, 12);
    EXPECT_GT(counts.moved, 0);
    generate(found, LookupTrees{});
    EXPECT_EQ(found, plain);
  }
}

}  // namespace
}  // namespace lathe::testing
