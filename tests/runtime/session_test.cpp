// Holds sessions to their contract: the cpu executor, and eager and graph on the fake driver, which
// runs each kernel by its oracle, so that all must agree to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/device_impl.h"
#include "runtime/session_base.h"
#include "runtime/weights.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

SessionOptions options_for(ExecutorKind kind, int context = 32, Fusion fusion = Fusion::full) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = context;
  options.plan.fusion = fusion;
  options.threads = 2;
  options.disk_cache = false;
  return options;
}

std::unique_ptr<Session> open_or_fail(const std::shared_ptr<const GgufFile>& file,
                                      const SessionOptions& options, const Platform& platform) {
  auto session = open_session(file, options, platform);
  if (!session) {
    ADD_FAILURE() << session.error().text();
    return nullptr;
  }
  return std::move(session).value();
}

struct Decoded {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;
};

// Greedy decoding from `token`.
Decoded decode(Session& session, std::int32_t token, int count) {
  Decoded decoded;
  for (int i = 0; i < count; ++i) {
    if (auto stepped = session.step(token); !stepped) {
      ADD_FAILURE() << stepped.error().text();
      return decoded;
    }
    token = session.sampled().value();
    decoded.tokens.push_back(token);
  }
  const auto logits = session.logits().value();
  decoded.logits.assign(logits.begin(), logits.end());
  return decoded;
}

// With one kernel for each operation, and with five a layer.
class SessionTest : public ::testing::TestWithParam<Fusion> {
 protected:
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  static SessionOptions options_for(ExecutorKind kind, int context = 32) {
    return testing::options_for(kind, context, GetParam());
  }
  std::unique_ptr<Session> open(ExecutorKind kind, int context = 32) {
    return open_or_fail(file_, options_for(kind, context), fake_.platform());
  }

  FakeDriver fake_;
  std::shared_ptr<const GgufFile> file_ = make_model();
};

INSTANTIATE_TEST_SUITE_P(Fusion, SessionTest, ::testing::Values(Fusion::none, Fusion::full),
                         [](const auto& info) {
                           return info.param == Fusion::full ? "full" : "none";
                         });

TEST_P(SessionTest, CpuGivesFiniteLogitsWhoseGreatestIsTheArgmax) {
  const auto session = open(ExecutorKind::cpu);
  ASSERT_TRUE(session);
  const Decoded decoded = decode(*session, 3, 8);
  ASSERT_EQ(decoded.logits.size(), 160u);
  EXPECT_TRUE(std::all_of(decoded.logits.begin(), decoded.logits.end(),
                          [](float value) { return std::isfinite(value); }));
  const auto greatest = std::max_element(decoded.logits.begin(), decoded.logits.end());
  EXPECT_EQ(decoded.tokens.back(), greatest - decoded.logits.begin());
  EXPECT_EQ(session->length(), 8);
  EXPECT_EQ(session->report().device, "CPU, 2 threads");
  EXPECT_EQ(session->read_rate().value(), 0);
}

TEST_P(SessionTest, CpuResultDoesNotDependOnTheNumberOfThreads) {
  const Decoded two = decode(*open(ExecutorKind::cpu), 3, 8);
  for (int threads : {1, 3, 7}) {
    SessionOptions options = options_for(ExecutorKind::cpu);
    options.threads = threads;
    const Decoded other = decode(*open_or_fail(file_, options, {}), 3, 8);
    EXPECT_EQ(other.tokens, two.tokens) << threads;
    EXPECT_EQ(other.logits, two.logits) << threads;
  }
}

TEST_P(SessionTest, AllExecutorsAgree) {
  const Decoded cpu = decode(*open(ExecutorKind::cpu), 3, 24);
  const Decoded eager = decode(*open(ExecutorKind::eager), 3, 24);
  const Decoded graph = decode(*open(ExecutorKind::graph), 3, 24);
  EXPECT_EQ(eager.tokens, cpu.tokens);
  EXPECT_EQ(graph.tokens, cpu.tokens);
  EXPECT_EQ(eager.logits, cpu.logits);
  EXPECT_EQ(graph.logits, cpu.logits);
  EXPECT_EQ(fake_.leaks(), "");
}

TEST_P(SessionTest, StepsThatNobodyWaitsForKeepTheirTokens) {
  const std::vector<std::int32_t> prompt = {3, 77, 5, 120, 9, 14, 2, 2, 40, 41, 42, 43};
  std::vector<std::vector<float>> results;
  for (ExecutorKind kind : {ExecutorKind::cpu, ExecutorKind::eager, ExecutorKind::graph}) {
    const auto session = open(kind);
    ASSERT_TRUE(session);
    fake_.reset_counts();
    for (std::int32_t token : prompt) ASSERT_TRUE(session->step(token));
    EXPECT_EQ(fake_.calls("cuStreamSynchronize"), 0);
    const auto logits = session->logits().value();
    results.emplace_back(logits.begin(), logits.end());
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_P(SessionTest, GenerateIsTheSameAsStepsAndAsksTheHostForNothing) {
  const Decoded expected = decode(*open(ExecutorKind::cpu), 3, 12);
  for (ExecutorKind kind : {ExecutorKind::cpu, ExecutorKind::eager, ExecutorKind::graph}) {
    const auto session = open(kind, 14);
    ASSERT_TRUE(session);
    std::vector<std::int32_t> tokens(8);
    ASSERT_TRUE(session->generate(3, tokens));
    EXPECT_EQ(session->length(), 8);
    EXPECT_EQ(session->sampled().value(), tokens.back());
    std::vector<std::int32_t> more(3);
    fake_.reset_counts();
    ASSERT_TRUE(session->generate(tokens.back(), more));
    if (kind != ExecutorKind::cpu) {
      EXPECT_EQ(fake_.calls("cuStreamSynchronize"), 0);
      EXPECT_EQ(fake_.calls("cuStreamQuery"), 1);
      EXPECT_EQ(fake_.calls("cuStreamWriteValue64"), 1);
    }
    tokens.insert(tokens.end(), more.begin(), more.end());
    ASSERT_TRUE(session->step(tokens.back()));
    tokens.push_back(session->sampled().value());
    EXPECT_EQ(tokens, expected.tokens) << executor_name(kind);
    const auto logits = session->logits().value();
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), expected.logits.begin()));

    fake_.reset_counts();
    EXPECT_EQ(session->generate(1, more).error().code, Code::out_of_range);  // 12 + 3 > 14
    EXPECT_EQ(session->generate(-1, more).error().code, Code::out_of_range);
    EXPECT_TRUE(session->generate(1, {}));
    EXPECT_EQ(fake_.calls(), 0);
    EXPECT_EQ(session->length(), 12);
  }
}

TEST(SessionWithoutMemoryOperations, StepsKeepTheirTokens) {
  FakeDriver fake({.stream_memory_operations = false});
  const auto file = make_model();
  std::vector<std::vector<float>> results;
  for (ExecutorKind kind : {ExecutorKind::cpu, ExecutorKind::graph}) {
    const auto session = open_or_fail(file, options_for(kind), fake.platform());
    ASSERT_TRUE(session);
    for (std::int32_t token : {3, 77, 5, 120}) ASSERT_TRUE(session->step(token));
    const auto logits = session->logits().value();
    results.emplace_back(logits.begin(), logits.end());
  }
  EXPECT_EQ(fake.calls("cuStreamWriteValue64"), 0);
  EXPECT_EQ(results[1], results[0]);
}

TEST_P(SessionTest, RollbackForgetsWhatCameAfter) {
  for (ExecutorKind kind : {ExecutorKind::cpu, ExecutorKind::eager, ExecutorKind::graph}) {
    const auto session = open(kind);
    ASSERT_TRUE(session);
    const Decoded first = decode(*session, 3, 6);
    ASSERT_TRUE(session->rollback(2));
    EXPECT_EQ(session->length(), 2);
    EXPECT_EQ(decode(*session, first.tokens[1], 4).logits, first.logits);
    ASSERT_TRUE(session->rollback(2));
    decode(*session, 100, 3);
    ASSERT_TRUE(session->rollback(0));
    EXPECT_EQ(session->length(), 0);
    EXPECT_EQ(decode(*session, 3, 6).logits, first.logits);
    EXPECT_EQ(session->rollback(7).error().code, Code::out_of_range);
    EXPECT_EQ(session->rollback(-1).error().code, Code::out_of_range);
    EXPECT_EQ(session->length(), 6);
  }
}

TEST_P(SessionTest, WrongTokensAndAFullContextAreRefusedBeforeAnyLaunch) {
  for (ExecutorKind kind : {ExecutorKind::cpu, ExecutorKind::eager, ExecutorKind::graph}) {
    const auto session = open(kind, 4);
    ASSERT_TRUE(session);
    EXPECT_EQ(session->sampled().error().code, Code::invalid_argument);
    EXPECT_EQ(session->logits().error().code, Code::invalid_argument);
    fake_.reset_counts();
    EXPECT_EQ(session->step(-1).error().code, Code::out_of_range);
    EXPECT_EQ(session->step(160).error().code, Code::out_of_range);
    EXPECT_EQ(fake_.calls(), 0);
    const Decoded full = decode(*session, 159, 4);
    fake_.reset_counts();
    EXPECT_EQ(session->step(1).error().code, Code::out_of_range);
    EXPECT_EQ(fake_.calls(), 0);
    // What was decoded stays usable.
    const auto logits = session->logits().value();
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), full.logits.begin()));
  }
}

TEST_P(SessionTest, TheCallersContextAndStreamAreBorrowed) {
  const CUcontext mine = fake_.make_context();
  const CUcontext other = fake_.make_context();
  const CUstream stream = fake_.make_stream();
  fake_.push_context(other);
  {
    SessionOptions options = options_for(ExecutorKind::graph);
    options.context = mine;
    options.stream = stream;
    const auto session = open_or_fail(file_, options, fake_.platform());
    ASSERT_TRUE(session);
    decode(*session, 3, 4);
    EXPECT_TRUE(session->read_rate());
    EXPECT_EQ(fake_.current_context(), other);
    EXPECT_EQ(fake_.calls("cuDevicePrimaryCtxRetain"), 0);
    EXPECT_EQ(fake_.calls("cuStreamCreate"), 0);

    fake_.begin_capture(stream);
    EXPECT_EQ(session->step(1).error().code, Code::invalid_argument);
    EXPECT_EQ(session->sampled().error().code, Code::invalid_argument);
    EXPECT_EQ(session->read_rate().value(), session->read_rate().value());
    EXPECT_TRUE(fake_.end_capture(stream).empty());
    EXPECT_TRUE(session->step(1));
  }
  EXPECT_EQ(fake_.current_context(), other);
  EXPECT_EQ(fake_.leaks(), "1 streams, 1 pushed contexts, ");
}

TEST_P(SessionTest, AStreamWithoutItsContextIsRefused) {
  SessionOptions options = options_for(ExecutorKind::eager);
  options.stream = fake_.make_stream();
  const auto session = open_session(file_, options, fake_.platform());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::invalid_argument);
}

TEST_P(SessionTest, ReportsWhatRan) {
  const auto session = open(ExecutorKind::eager);
  ASSERT_TRUE(session);
  const SessionReport& report = session->report();
  int kernels = int(session->plan().distinct_keys().size());
  if (report.chunk > 0) {
    const auto prefill = build_prefill_plan(session->plan(), true);
    ASSERT_TRUE(prefill);
    kernels += int(prefill->plan.distinct_keys().size());
  }
  EXPECT_EQ(report.device, "Fake GPU, sm_90a, driver 13.0");
  EXPECT_EQ(report.executor, "eager");
  EXPECT_EQ(report.routes, "llvm " + std::to_string(kernels) + " kernels");
  EXPECT_EQ(report.assembler, "fake assembler 1.0");
  // And those that bring weights into tiles.
  EXPECT_EQ(report.kernels_built, kernels + int(BoundWeights::keys(session->plan()).size()));
  EXPECT_EQ(report.kernels_from_cache, 0);
  EXPECT_GT(report.weight_bytes, 0);
  // Keys and values of 2 layers at 32 positions: 2 heads of 64, in f32.
  EXPECT_EQ(report.kv_bytes, 2 * 2 * 32 * 2 * 64 * 4);
  EXPECT_GT(report.scratch_bytes, 0);
  EXPECT_GT(session->read_rate().value(), 0);
}

TEST(SessionMemory, OutOfMemoryNamesWhatIsNeededAndWhatWouldFit) {
  const auto file = make_model();
  std::int64_t weights = 0;
  std::int64_t per_position = 0;
  {
    FakeDriver roomy;
    const auto session = open_or_fail(file, options_for(ExecutorKind::eager), roomy.platform());
    weights = session->report().weight_bytes + session->report().scratch_bytes;
    per_position = session->plan().counts().kv_bytes_per_position;
  }
  EXPECT_GT(per_position, 0);
  // A small device, and a large one of which others have the rest.
  const auto room = std::size_t(weights + 512 * 1024);
  for (const FakeOptions& device :
       {FakeOptions{.memory = room}, FakeOptions{.others = FakeOptions{}.memory - room}}) {
    FakeDriver fake(device);
    const auto session =
        open_session(file, options_for(ExecutorKind::eager, 4096), fake.platform());
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().code, Code::out_of_memory);
    const std::string text = session.error().text();
    EXPECT_NE(text.find("needed: "), std::string::npos) << text;
    EXPECT_NE(text.find("free: "), std::string::npos) << text;
    // 512 KiB less what goes through the tiles' blocks; half as much a position in f16.
    EXPECT_NE(text.find("positions would fit (or "), std::string::npos) << text;
    EXPECT_NE(text.find(" with a KV cache in f16)"), std::string::npos) << text;
    // Seen before anything is allocated.
    EXPECT_NE(text.find("The model does not fit the memory"), std::string::npos) << text;
    EXPECT_NE(text.find("bytes, and "), std::string::npos) << text;
    EXPECT_EQ(fake.leaks(), "");
  }
}

TEST_P(SessionTest, SessionsMayShareKernels) {
  DeviceOptions options;
  options.disk_cache = false;
  auto device = DeviceImpl::open(options, fake_.platform());
  ASSERT_TRUE(device);
  SessionOptions shared = options_for(ExecutorKind::graph);
  shared.kernels = device.value();
  const auto first = open_or_fail(file_, shared, fake_.platform());
  const auto second = open_or_fail(file_, shared, fake_.platform());
  ASSERT_TRUE(first && second);
  EXPECT_GT(first->report().kernels_built, 0);
  EXPECT_EQ(second->report().kernels_built, 0);
  EXPECT_EQ(decode(*first, 3, 4).logits, decode(*second, 3, 4).logits);
}

TEST(DeviceOfASession, HasAllThatTheSessionsOptionsSay) {
  SessionOptions session;
  session.device = 3;
  session.context = reinterpret_cast<CUctx_st*>(std::uintptr_t{64});
  session.routes = {Route::text, Route::nvrtc};
  session.compilers = {.nvrtc = "nvrtc", .llvm = "llvm"};
  session.disk_cache = false;
  session.cache_directory = "cache";
  session.cache_read_only = true;
  session.cache_cap_bytes = 5;
  session.log = [](LogLevel, std::string_view) {};
  session.dump_directory = "dump";
  const DeviceOptions device = device_options(session);
  EXPECT_EQ(device.device, 3);
  EXPECT_EQ(device.context, session.context);
  EXPECT_EQ(device.routes, session.routes);
  EXPECT_EQ(device.compilers.nvrtc + device.compilers.llvm, "nvrtcllvm");
  EXPECT_TRUE(!device.disk_cache && device.cache_read_only && device.log);
  EXPECT_EQ(device.cache_directory + device.dump_directory, "cachedump");
  EXPECT_EQ(device.cache_cap_bytes, 5);
}

TEST_P(SessionTest, TwoHundredSessionsLeaveNothingBehind) {
  for (int i = 0; i < 200; ++i) {
    const auto session = open(i % 2 ? ExecutorKind::graph : ExecutorKind::eager);
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->step(i % 160));
  }
  EXPECT_EQ(fake_.leaks(), "");
}

TEST(SessionOnAFailingDriver, HasNoLogitsOfAnOlderPrompt) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::eager);
  options.plan.fusion = Fusion::full;
  const auto session = open_session(make_model(), options, fake.platform()).value();
  ASSERT_GT(session->report().chunk, 0);
  ASSERT_TRUE(session->step(3) && session->logits());
  const std::vector<std::int32_t> prompt(9, 5);
  fake.fail_call("cuStreamWriteValue64", 0, CUDA_ERROR_UNKNOWN);
  ASSERT_FALSE(session->feed(prompt));
  EXPECT_EQ(session->length(), 9);  // all but the last
  EXPECT_FALSE(session->sampled());
  EXPECT_FALSE(session->logits());
  ASSERT_TRUE(session->step(5));
  EXPECT_TRUE(session->logits());
}

TEST(Executors, HaveNames) {
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega,
                            ExecutorKind::cpu, ExecutorKind::automatic}) {
    EXPECT_EQ(executor_by_name(executor_name(kind)).value(), kind);
  }
  EXPECT_EQ(executor_by_name("giga").error().code, Code::invalid_argument);
}

TEST(SessionArguments, AreChecked) {
  EXPECT_EQ(Session::open(nullptr, {}).error().code, Code::invalid_argument);
  EXPECT_EQ(Batch::open(nullptr, {}).error().message, "The model file is null.");
  SessionOptions options = options_for(ExecutorKind::cpu);
  options.threads = -1;
  EXPECT_EQ(Session::open(make_model(), options).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace lathe::testing
