// Holds the graph executor's edges to the rule for kernels that begin early: all of a graph's do,
// or none, and none where the driver has no such edges.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

struct Replayed {
  std::vector<std::int32_t> tokens;
  FakeDriver::GraphRun run;

  int edges() const {
    int count = 0;
    for (const auto& before : run.waits_for) count += int(before.size());
    return count;
  }
};

// Tokens of several graphs without the host in between.
Replayed replay(const FakeOptions& fake_options, Fusion fusion) {
  FakeDriver fake(fake_options);
  Replayed out;
  {
    SessionOptions options = emulated_options(ExecutorKind::graph);
    options.plan.fusion = fusion;
    const auto session = open_session(make_model(fusible(tiny_gemma3())), options, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    if (!session) return out;
    out.tokens.resize(6);
    const auto generated = (*session)->generate(3, out.tokens);
    EXPECT_TRUE(generated) << generated.error().text();
  }
  out.run = fake.graph_run();
  for (const std::string& violation : fake.violations()) ADD_FAILURE() << violation;
  EXPECT_EQ(fake.leaks(), "");
  return out;
}

TEST(EarlyLaunches, AreAllOfAGraphWhoseKernelsWait) {
  const Replayed replayed = replay({}, Fusion::full);
  EXPECT_GT(replayed.edges(), 10);
  EXPECT_EQ(replayed.run.early, replayed.edges());
}

TEST(EarlyLaunches, AreNoneOfAGraphWithOthers) {
  const Replayed replayed = replay({}, Fusion::none);
  EXPECT_GT(replayed.edges(), 10);
  EXPECT_EQ(replayed.run.early, 0);
}

TEST(EarlyLaunches, AreNoneByADriverWithoutThem) {
  FakeOptions old;
  old.driver_version = 12020;
  const Replayed replayed = replay(old, Fusion::full);
  EXPECT_EQ(replayed.run.early, 0);
  const Replayed early = replay({}, Fusion::full);
  EXPECT_EQ(replayed.edges(), early.edges());
  EXPECT_EQ(replayed.tokens, early.tokens);
}

}  // namespace
}  // namespace lathe::testing
