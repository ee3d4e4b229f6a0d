// Holds the mega executor's step in a graph that a caller captures to the graph executor's, with
// the device code emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

// The steps that a caller records into a graph of its own, with rules that change between replays.
TEST(EmulatedSession, ReplaysOfMegaDecodeWhatGraphDecodes) {
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 5}}) {
    FakeDriver fake(emulated(3, verification::fresh_seed()));
    std::vector<std::int32_t> expected(6), found(6);
    {
      SessionOptions options = emulated_options(ExecutorKind::graph);
      options.context = fake.make_context();
      options.stream = fake.make_stream();
      const auto file = make_model(fusible(tiny_llama()));
      const auto graph = open_session(file, options, fake.platform());
      options.executor = ExecutorKind::mega;
      const auto mega = open_session(file, options, fake.platform());
      ASSERT_TRUE(graph && mega);
      ASSERT_TRUE((*graph)->generate(5, std::span(expected).first(3)));
      ASSERT_TRUE((*graph)->set_sampling(sampling));
      ASSERT_TRUE((*graph)->generate(expected[2], std::span(expected).subspan(3)));

      fake.begin_capture(options.stream);
      ASSERT_TRUE((*mega)->record_step());
      const FakeRecording recording = fake.end_capture(options.stream);
      ASSERT_TRUE((*mega)->generate(5, std::span(found).first(2)));
      ASSERT_TRUE((*mega)->begin_replays(found[1]));
      fake.replay(recording, options.stream);
      ASSERT_TRUE((*mega)->take_replays(std::span(found).subspan(2, 1)));
      ASSERT_TRUE((*mega)->set_sampling(sampling));
      for (int i = 0; i < 3; ++i) fake.replay(recording, options.stream);
      ASSERT_TRUE((*mega)->take_replays(std::span(found).subspan(3)));
      EXPECT_EQ(found, expected);
      EXPECT_TRUE(std::ranges::equal((*mega)->logits().value(), (*graph)->logits().value()));
    }
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace lathe::testing
