// Owns the proof that no step relies on another's speed: each kernel of a graph, and blocks of a
// persistent kernel, are held back on purpose, and nothing changes; where a step does not wait for
// one that it needs, something does.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

struct Decoded {
  std::vector<std::int32_t> tokens;   // sampled after each step, then generated
  std::vector<std::uint32_t> logits;  // their bits, after the last step
  bool operator==(const Decoded&) const = default;
};

Decoded decode(const TinyModel& model, const FakeOptions& fake_options,
               const SessionOptions& options, bool generates = true,
               FakeDriver::GraphRun* run = nullptr) {
  FakeDriver fake(fake_options);
  Decoded out;
  {
    const auto session = open_session(make_model(model), options, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    if (!session) return out;
    for (const std::int32_t token : {3, 17, 3, 41}) {
      EXPECT_TRUE((*session)->step(token));
      const auto sampled = (*session)->sampled();
      EXPECT_TRUE(sampled);
      out.tokens.push_back(sampled ? *sampled : -1);
    }
    const auto logits = (*session)->logits();
    EXPECT_TRUE(logits) << logits.error().text();
    if (logits)
      for (const float v : *logits) out.logits.push_back(std::bit_cast<std::uint32_t>(v));
    if (generates) {
      std::vector<std::int32_t> more(3);
      EXPECT_TRUE((*session)->generate(5, more));
      out.tokens.insert(out.tokens.end(), more.begin(), more.end());
    }
  }
  if (run) *run = fake.graph_run();
  for (const std::string& violation : fake.violations()) ADD_FAILURE() << violation;
  return out;
}

Decoded decode_graph(const TinyModel& model, const FakeOptions& fake_options, bool generates = true,
                     FakeDriver::GraphRun* run = nullptr) {
  SessionOptions options;
  options.executor = ExecutorKind::graph;
  options.plan.context = 32;
  options.disk_cache = false;
  return decode(model, fake_options, options, generates, run);
}

TEST(DelayedSteps, OfAGraphChangeNothing) {
  for (const TinyModel& model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()}) {
    SCOPED_TRACE(model.architecture);
    FakeDriver::GraphRun run;
    const Decoded expected = decode_graph(model, {}, true, &run);
    ASSERT_GT(run.order.size(), 10u);
    for (std::size_t node = 0; node < run.order.size(); ++node) {
      FakeOptions options;
      options.held_node = node;
      EXPECT_TRUE(decode_graph(model, options) == expected) << "node " << node << " came late";
    }
  }
}

// Otherwise the test above could not fail. Tokens are generated only where those of steps, which
// are given, are right: what comes of no wait may be no token.
TEST(DelayedSteps, ThatAreNotWaitedForAreNoticed) {
  const TinyModel model = tiny_qwen3();
  FakeDriver::GraphRun run;
  const Decoded of_steps = decode_graph(model, {}, false, &run);
  const Decoded expected = decode_graph(model, {});
  std::size_t edges = 0, overtaken = 0;
  const auto waits_for = run.waits_for;
  for (std::size_t node = 0; node < waits_for.size(); ++node) {
    for (const std::size_t before : waits_for[node]) {
      ++edges;
      FakeOptions options;
      options.held_node = before;
      options.forgotten_edge = {before, node};
      const bool same = decode_graph(model, options, false, &run) == of_steps;
      const auto at = [&](std::size_t n) { return std::ranges::find(run.order, n); };
      if (at(before) < at(node)) continue;  // other edges make it wait
      ++overtaken;
      EXPECT_FALSE(same && decode_graph(model, options) == expected)
          << node << " of " << run.order.size() << " did not wait for " << before;
    }
  }
  EXPECT_GT(overtaken, edges / 2) << edges;
}

TEST(DelayedSteps, OfAPersistentKernelChangeNothing) {
  for (const TinyModel& family : {tiny_llama(), tiny_gemma3()}) {
    const TinyModel model = fusible(family);
    const std::uint64_t seed = verification::fresh_seed();
    SCOPED_TRACE(model.architecture + ", seed " + std::to_string(seed));
    FakeOptions fake = emulated(3, seed);
    const Decoded expected = decode(model, fake, emulated_options(ExecutorKind::graph));
    for (const unsigned held_back : {20u, 400u}) {
      fake.run_persistent = [&](const std::string& program, std::span<void* const> arguments) {
        return emulation::emulate_persistent(program, arguments, seed + held_back, held_back);
      };
      EXPECT_TRUE(decode(model, fake, emulated_options(ExecutorKind::mega)) == expected)
          << "a block in " << held_back;
    }
  }
}

// With two tiles at once the L2 cache is asked, while a vector is waited for, for the weights
// behind those of the ring. Nothing is asked for that is not copied later, and nothing changes by
// it. Of the 18 tile columns of `down` a warp has two or three: a copy of two tiles, or that and
// one of one.
TEST(DelayedSteps, LeaveTimeToAskForWeights) {
  TinyModel model = model_shape(1);
  model.ffn = 4608;
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  FakeOptions fake = emulated(21, seed);
  SessionOptions options = emulated_options(ExecutorKind::graph);
  options.plan.tuning = "matvec.paired=1";
  const Decoded expected = decode(model, fake, options);
  std::uint64_t asked = 0, copied = 0;
  std::set<unsigned> sizes;
  fake.run_persistent = [&](const std::string& program, std::span<void* const> arguments) {
    const auto ran = emulation::emulate_persistent(program, arguments, seed, 20);
    const emulation::Prefetches& of = emulation::prefetches();
    asked += of.asked;
    copied += of.copied;
    sizes.insert(of.sizes.begin(), of.sizes.end());
    return ran;
  };
  options.executor = ExecutorKind::mega;
  EXPECT_TRUE(decode(model, fake, options) == expected);
  EXPECT_GT(asked, 100u);
  EXPECT_EQ(copied, asked);
  EXPECT_TRUE(std::ranges::any_of(sizes, [&](unsigned size) { return sizes.contains(2 * size); }));
}

}  // namespace
}  // namespace lathe::testing
