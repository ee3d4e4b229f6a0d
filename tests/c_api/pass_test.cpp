// Holds the C functions about parts of models, hidden states and times to the library's own
// results, and to their contract for what is wrong.
#include <string>
#include <vector>

#include "runtime/c_api/objects.h"
#include "tests/c_api/fixture.h"
#include "tests/plan/gguf_writer.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

class PassFunctions : public ::testing::Test {
 protected:
  PassFunctions() {
    options_.executor = LATHE_EXECUTOR_CPU;
    options_.context = 16;
    options_.threads = 1;
    layer_.first_layer = 1;
    layer_.layers = 1;
    layer_.input = LATHE_INPUT_HIDDEN;
    layer_.output = LATHE_OUTPUT_HIDDEN;
  }
  SessionHandle open(const lathe_model_part* part) {
    options_.part = part;
    lathe_session* session = nullptr;
    EXPECT_EQ(lathe_session_open(model_.get(), &options_, &session), LATHE_OK) << last_message();
    return SessionHandle(session);
  }
  void expect_refused(lathe_status status, const char* words) {
    lathe_session* session = nullptr;
    EXPECT_REFUSED(lathe_session_open(model_.get(), &options_, &session), status, words);
  }

  const GgufImage image_ = tiny_model(model_shape(2));
  Model model_ = model_of(image_);
  lathe_session_options options_ = api::sized<lathe_session_options>();
  lathe_model_part layer_ = api::sized<lathe_model_part>();
};

lathe_session_info info_of(const SessionHandle& session) {
  auto info = api::sized<lathe_session_info>();
  EXPECT_EQ(lathe_session_get_info(session.get(), &info), LATHE_OK);
  return info;
}

TEST_F(PassFunctions, APartIsTheLibrarysPart) {
  SessionOptions options;
  options.executor = ExecutorKind::cpu;
  options.plan.context = 16;
  options.plan.part = {
      .first_layer = 1, .layers = 1, .input = PartInput::hidden, .output = PartOutput::hidden};
  const auto direct = Session::open(make_model(2), options).value();
  const SessionHandle session = open(&layer_);
  const lathe_session_info info = info_of(session);
  EXPECT_EQ(info.layers, 1);
  EXPECT_EQ(info.hidden, direct->plan().spec.hidden);
  EXPECT_EQ(info.submissions, 0);
  EXPECT_EQ(std::string(info.graph_key), direct->report().graph_key);
  EXPECT_EQ(std::string(info.tuning), direct->report().tuning);
  Floats state(std::size_t(info.hidden), 0.25f), found(state.size()), expected(state.size());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(lathe_session_step_hidden(session.get(), state.data(), info.hidden, -1), LATHE_OK)
        << last_message();
    ASSERT_TRUE(direct->step_hidden(state));
    for (const auto& [number, which] : {std::pair(LATHE_HIDDEN_STREAM, HiddenState::stream),
                                        std::pair(LATHE_HIDDEN_NORMED, HiddenState::normed)}) {
      ASSERT_EQ(lathe_session_read_hidden(session.get(), number, found.data(), info.hidden),
                LATHE_OK)
          << last_message();
      ASSERT_TRUE(direct->read_hidden(which, expected));
      EXPECT_EQ(found, expected);
    }
    state = found;
  }
  EXPECT_REFUSED(lathe_session_step(session.get(), 1), LATHE_INVALID_ARGUMENT, "not tokens");
  EXPECT_REFUSED(lathe_session_step_hidden(session.get(), state.data(), 3, -1),
                 LATHE_INVALID_ARGUMENT, "not 3");
  EXPECT_REFUSED(lathe_session_step_hidden(session.get(), nullptr, info.hidden, -1),
                 LATHE_INVALID_ARGUMENT, "state");
  EXPECT_REFUSED(lathe_session_step_hidden(session.get(), state.data(), info.hidden, 1 << 20),
                 LATHE_OUT_OF_RANGE, "vocabulary");
  EXPECT_REFUSED(lathe_session_read_hidden(session.get(), 2, found.data(), info.hidden),
                 LATHE_INVALID_ARGUMENT, "hidden state number 2");
  EXPECT_REFUSED(lathe_session_read_hidden(session.get(), 0, found.data(), -1),
                 LATHE_INVALID_ARGUMENT, "state");
}

TEST_F(PassFunctions, PartsThatAreNoneAreRefused) {
  lathe_model_part part = layer_;
  options_.part = &part;
  part.input = 2;
  expect_refused(LATHE_INVALID_ARGUMENT, "input number 2");
  part = layer_;
  part.output = -1;
  expect_refused(LATHE_INVALID_ARGUMENT, "output number -1");
  part = layer_;
  part.blocks = 3;
  expect_refused(LATHE_INVALID_ARGUMENT, "blocks number 3");
  part = layer_;
  part.no_residual = 7;
  expect_refused(LATHE_INVALID_ARGUMENT, "no_residual number 7");
  part.no_residual = 1;
  expect_refused(LATHE_INVALID_ARGUMENT, "without the residual");
  part = layer_;
  part.struct_size = 0;
  expect_refused(LATHE_INVALID_ARGUMENT, "lathe_model_part");
  options_.part = nullptr;
  options_.parity = 2;
  expect_refused(LATHE_INVALID_ARGUMENT, "parity is 2");
  options_.parity = 0;
  options_.time_steps = 2;
  expect_refused(LATHE_INVALID_ARGUMENT, "time_steps number 2");
}

TEST_F(PassFunctions, BlocksOfOneKind) {
  lathe_model_part ffn = layer_;
  ffn.blocks = LATHE_BLOCKS_FFN;
  const SessionHandle with = open(&ffn);
  ffn.no_residual = 1;
  const SessionHandle without = open(&ffn);
  const int hidden = info_of(with).hidden;
  Floats state(std::size_t(hidden), 0.25f), sum(state.size()), alone(state.size());
  ASSERT_EQ(lathe_session_step_hidden(with.get(), state.data(), hidden, -1), LATHE_OK);
  ASSERT_EQ(lathe_session_step_hidden(without.get(), state.data(), hidden, -1), LATHE_OK);
  ASSERT_EQ(lathe_session_read_hidden(with.get(), 0, sum.data(), hidden), LATHE_OK);
  ASSERT_EQ(lathe_session_read_hidden(without.get(), 0, alone.data(), hidden), LATHE_OK);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], alone[i] + state[i], 1e-5);
}

TEST_F(PassFunctions, StepsHaveTimes) {
  options_.time_steps = 1;
  options_.parity = 0.99;
  const SessionHandle session = open(nullptr);
  EXPECT_GE(info_of(session).parity, 0.99);
  std::int32_t count = -1;
  EXPECT_REFUSED(lathe_session_get_step_times(session.get(), nullptr, 0, &count),
                 LATHE_INVALID_ARGUMENT, "before the next step");
  ASSERT_EQ(lathe_session_step(session.get(), 3), LATHE_OK);
  ASSERT_EQ(lathe_session_get_step_times(session.get(), nullptr, 0, &count), LATHE_OK);
  EXPECT_EQ(count, info_of(session).launches);
  std::vector<lathe_step_time> steps(static_cast<std::size_t>(count));
  EXPECT_REFUSED(lathe_session_get_step_times(session.get(), steps.data(), count - 1, &count),
                 LATHE_INVALID_ARGUMENT, "room for");
  EXPECT_REFUSED(lathe_session_get_step_times(session.get(), steps.data(), count, nullptr),
                 LATHE_INVALID_ARGUMENT, "count");
  ASSERT_EQ(lathe_session_get_step_times(session.get(), steps.data(), count, &count), LATHE_OK);
  EXPECT_EQ(std::string(steps.front().label), "token_embd");
  EXPECT_EQ(std::string(steps.front().kernel).substr(0, 6), "embed.");
  EXPECT_EQ(steps.front().layer, -1);
  EXPECT_EQ(std::string(steps.back().label), "sample");
  double least = -1, median = -1;
  ASSERT_EQ(lathe_session_submit_round_trip(session.get(), 5, &least, &median), LATHE_OK);
  EXPECT_EQ(least, 0);
  EXPECT_EQ(median, 0);
  EXPECT_REFUSED(lathe_session_submit_round_trip(session.get(), 0, &least, &median),
                 LATHE_INVALID_ARGUMENT, "0 round trips");
  EXPECT_REFUSED(lathe_session_submit_round_trip(session.get(), 1, nullptr, &median),
                 LATHE_INVALID_ARGUMENT, "least");
}

}  // namespace
}  // namespace lathe::testing
