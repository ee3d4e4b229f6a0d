// Holds sessions on a real GPU to the cpu executor, and Lathe to its manners with the caller's
// context, stream, threads and memory. Skipped with the reason where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <thread>
#include <vector>

#include "runtime/assembler.h"
#include "runtime/device_impl.h"
#include "runtime/session_base.h"
#include "tests/runtime/batch_schedule.h"
#include "tests/runtime/drawn_text.h"
#include "tests/runtime/relative_error.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

constexpr int kTokens = 48;
// Of the logits against the oracles': the design's bound for kernels that keep f32 activations.
constexpr double kLogitsBound = 2e-3;

std::vector<std::int32_t> prompt() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back((i * 37 + 11) % 160);
  return tokens;
}

SessionOptions options_for(ExecutorKind kind) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 64;
  options.disk_cache = false;
  return options;
}

using Logits = std::vector<std::vector<float>>;

// The logits after each token of the prompt.
Logits decode(Session& session) {
  Logits all;
  for (std::int32_t token : prompt()) {
    const auto stepped = session.step(token);
    EXPECT_TRUE(stepped) << stepped.error().text();
    const auto logits = session.logits();
    if (!logits) {
      ADD_FAILURE() << logits.error().text();
      return all;
    }
    all.emplace_back(logits->begin(), logits->end());
    // The greatest, lowest id first.
    const auto greatest = std::max_element(all.back().begin(), all.back().end());
    EXPECT_EQ(session.sampled().value(), greatest - all.back().begin());
  }
  return all;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = system_driver();
    if (!driver) GTEST_SKIP() << driver.error().message;
    driver_ = driver.value();
  }

  std::unique_ptr<Session> open(const SessionOptions& options) {
    auto session = Session::open(file_, options);
    if (session) return std::move(session).value();
    ADD_FAILURE() << session.error().text();
    return nullptr;
  }

  bool has_mega() const {
    SessionOptions options = options_for(ExecutorKind::automatic);
    const auto session = Session::open(file_, options);
    return session && (*session)->report().executor == "mega";
  }

  static Result<std::shared_ptr<Device>> open_device() {
    DeviceOptions options;
    options.disk_cache = false;
    return Device::open(options);
  }

  const Driver* driver_ = nullptr;
  std::shared_ptr<const GgufFile> file_ = make_model();
};

TEST_F(GpuTest, EveryRouteGivesTheOraclesLogits) {
  const Logits expected = decode(*open(options_for(ExecutorKind::cpu)));
  int routes = 0;
  for (const Route route : {Route::llvm, Route::nvrtc, Route::text}) {
    SessionOptions options = options_for(ExecutorKind::eager);
    options.routes = {route};
    auto session = Session::open(file_, options);
    if (!session) {
      // A compiler that is not installed is no failure; what it refuses to compile is.
      EXPECT_NE(session.error().code, Code::compile) << session.error().text();
      continue;
    }
    ++routes;
    const Logits eager = decode(**session);
    ASSERT_EQ(eager.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(relative_error(eager[i], expected[i]), kLogitsBound)
          << route_name(route) << " at position " << i;
    }
    options.executor = ExecutorKind::graph;
    EXPECT_EQ(decode(*open(options)), eager) << route_name(route);
  }
  EXPECT_GT(routes, 0);
}

// By each route, in chunks that divide the prompt and that do not; again after a rollback.
TEST_F(GpuTest, APromptInChunksGivesTheOraclesLogits) {
  SessionOptions reference = options_for(ExecutorKind::cpu);
  const std::vector<std::int32_t> tokens = prompt();
  const auto expected = decode(*Session::open(make_model(), reference).value()).back();
  for (Route route : {Route::nvrtc, Route::llvm}) {
    for (int chunk : {64, 9}) {
      SCOPED_TRACE(std::string(route_name(route)) + ", " + std::to_string(chunk));
      SessionOptions options = options_for(chunk == 9 ? ExecutorKind::eager : ExecutorKind::graph);
      options.routes = {route};
      options.plan.chunk = chunk;
      const auto session = Session::open(make_model(), options);
      if (!session) {  // no such compiler; what it refuses to compile is a failure
        EXPECT_EQ(session.error().code, Code::not_eligible) << session.error().text();
        continue;
      }
      if ((*session)->plan().options.fusion != Fusion::full) GTEST_SKIP() << "no fused kernels";
      EXPECT_EQ((*session)->report().chunk, chunk);
      for (int start : {0, 3}) {
        ASSERT_TRUE((*session)->rollback(start));
        ASSERT_TRUE((*session)->feed(std::span(tokens).subspan(std::size_t(start))));
        const auto logits = (*session)->logits().value();
        EXPECT_LT(relative_error({logits.begin(), logits.end()}, expected), kLogitsBound);
      }
    }
  }
}

TEST_F(GpuTest, SequencesOfABatchGetWhatTheyGetAlone) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  for (const Format kv : {Format::f16, Format::q8_0}) {
    BatchOptions options;
    options.session = options_for(ExecutorKind::graph);
    options.session.plan.kv = kv;
    options.sequences = 6;
    options.rows = 24;
    const auto batch = Batch::open(make_model(), options);
    if (!batch && batch.error().code == Code::not_eligible) GTEST_SKIP() << batch.error().text();
    ASSERT_TRUE(batch) << batch.error().text();
    for (int i = 0; i < 500 && !HasFailure(); ++i) run_schedule(**batch, random, 40);
  }
}

TEST_F(GpuTest, StepsThatNobodyWaitsForKeepTheirTokens) {
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph}) {
    const auto waited = open(options_for(kind));
    const auto hurried = open(options_for(kind));
    ASSERT_TRUE(waited && hurried);
    const Logits expected = decode(*waited);
    for (std::int32_t token : prompt()) ASSERT_TRUE(hurried->step(token));
    const auto logits = hurried->logits().value();
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected.back());
    // And again after going back.
    ASSERT_TRUE(hurried->rollback(0));
    EXPECT_EQ(decode(*hurried), expected);
  }
}

TEST_F(GpuTest, GenerateIsTheSameAsSteps) {
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph}) {
    const auto stepped = open(options_for(kind));
    const auto generated = open(options_for(kind));
    ASSERT_TRUE(stepped && generated);
    std::vector<std::int32_t> expected(40), found(40);
    std::int32_t token = 3;
    for (std::int32_t& next : expected) {
      ASSERT_TRUE(stepped->step(token));
      next = token = stepped->sampled().value();
    }
    ASSERT_TRUE(generated->generate(3, std::span(found).first(16)));
    ASSERT_TRUE(generated->generate(found[15], std::span(found).subspan(16)));
    EXPECT_EQ(found, expected) << executor_name(kind);
  }
}

TEST_F(GpuTest, EveryExecutorSamplesTheSame) {
  using enum ExecutorKind;
  const auto text = [&](ExecutorKind kind, Fusion fusion, const Sampling& sampling) {
    SessionOptions options = options_for(kind);
    options.plan.fusion = fusion;
    const auto session = open(options);
    return session ? drawn_text(*session, sampling, 16, 24) : std::vector<std::int32_t>{};
  };
  const bool mega_applies = has_mega();
  for (const Sampling& sampling : kSamplingRules) {
    const auto expected = text(cpu, Fusion::none, sampling);
    EXPECT_EQ(text(eager, Fusion::none, sampling), expected);
    EXPECT_EQ(text(graph, Fusion::none, sampling), expected);
    if (!mega_applies) continue;
    // Not held to the cpu executor's: fused kernels round activations, and a draw that falls on the
    // border of two tokens goes another way then (docs/sampling.md).
    const auto fused = text(eager, Fusion::full, sampling);
    EXPECT_EQ(text(graph, Fusion::full, sampling), fused);
    EXPECT_EQ(text(mega, Fusion::full, sampling), fused);
  }
}

TEST_F(GpuTest, TheCallersContextAndStreamAreBorrowed) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  ASSERT_EQ(driver_->cuDeviceGet(&device, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  CUstream stream = nullptr;
  CUcontext popped = nullptr;
  ASSERT_EQ(driver_->cuCtxPushCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  const auto nothing_is_current = [&] {
    CUdevice current = 0;
    return driver_->cuCtxGetDevice(&current) == CUDA_ERROR_INVALID_CONTEXT;
  };
  ASSERT_TRUE(nothing_is_current());
  {
    SessionOptions options = options_for(ExecutorKind::graph);
    options.context = context;
    options.stream = stream;
    const auto session = open(options);
    ASSERT_TRUE(session);
    EXPECT_TRUE(nothing_is_current());
    decode(*session);
    EXPECT_TRUE(nothing_is_current());
  }
  EXPECT_TRUE(nothing_is_current());
  // Both still work.
  ASSERT_EQ(driver_->cuCtxPushCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(driver_->cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(driver_->cuStreamDestroy(stream), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(driver_->cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

TEST_F(GpuTest, EightThreadsWithASessionEach) {
  const auto device = open_device();
  ASSERT_TRUE(device) << device.error().text();
  SessionOptions options = options_for(ExecutorKind::graph);
  options.kernels = device.value();
  const Logits expected = decode(*open(options));
  std::vector<Logits> found(8);
  std::vector<std::thread> threads;
  for (Logits& logits : found) {
    threads.emplace_back([&, this] {
      if (const auto session = open(options)) logits = decode(*session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Logits& logits : found) EXPECT_EQ(logits, expected);
}

TEST_F(GpuTest, TwoHundredSessionsLeaveNoMemoryBehind) {
  const auto context = Context::open(*driver_, nullptr, 0);
  ASSERT_TRUE(context) << context.error().text();
  const auto device = open_device();
  ASSERT_TRUE(device) << device.error().text();
  const auto free_memory = [&] {
    const auto scope = context->enter();
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver_->cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return std::int64_t(free);
  };
  std::int64_t after_ten = 0;
  for (int i = 0; i < 200; ++i) {
    SessionOptions options = options_for(i % 2 ? ExecutorKind::graph : ExecutorKind::eager);
    options.kernels = device.value();
    const auto session = open(options);
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->step(i % 160));
    if (i == 10) after_ten = free_memory();
  }
  // Others may use the device too; a leak of any one buffer would be 190 times 2 MiB.
  EXPECT_GT(free_memory(), after_ten - (std::int64_t{128} << 20));
}

TEST_F(GpuTest, BrokenPtxDoesNotSpoilTheContext) {
  const auto context = Context::open(*driver_, nullptr, 0);
  ASSERT_TRUE(context) << context.error().text();
  const auto assembler = driver_assembler(*context);
  Target target = context->target();
  const std::string head = ".version " + target.ptx_version() + "\n.target " + target.name() +
                           "\n.address_size 64\n.visible .entry nothing() {\n";
  const auto broken = assembler->assemble(head + "  add.u32 %missing, 1, 2;\n  ret;\n}\n", target);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::compile) << broken.error().text();
  EXPECT_NE(broken.error().text().find("missing"), std::string::npos) << broken.error().text();
  const auto good = assembler->assemble(head + "  ret;\n}\n", target);
  ASSERT_TRUE(good) << good.error().text();
  decode(*open(options_for(ExecutorKind::graph)));
}

TEST_F(GpuTest, TheDriversAssemblerGivesTheSameTokens) {
  const Logits expected = decode(*open(options_for(ExecutorKind::graph)));
  ::setenv("LATHE_NVJITLINK", "off", 1);
  const auto session = open(options_for(ExecutorKind::graph));
  ::unsetenv("LATHE_NVJITLINK");
  ASSERT_TRUE(session);
  EXPECT_EQ(session->report().assembler.find("driver "), 0u) << session->report().assembler;
  const Logits found = decode(*session);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_LE(relative_error(found[i], expected[i]), 1e-5) << i;
  }
}

TEST_F(GpuTest, ASecondStartBuildsNothing) {
  const ScratchDirectory scratch;
  SessionOptions options = options_for(ExecutorKind::graph);
  options.disk_cache = true;
  options.cache_directory = scratch.path();
  const auto cold = open(options);
  const auto warm = open(options);
  ASSERT_TRUE(cold && warm);
  // Those of the plan, and those that bring its weights into tiles.
  const int kernels = cold->report().kernels_built;
  EXPECT_GE(kernels, int(cold->plan().distinct_keys().size()));
  EXPECT_EQ(cold->report().kernels_from_cache, 0);
  EXPECT_EQ(warm->report().kernels_built, 0);
  EXPECT_EQ(warm->report().kernels_from_cache, kernels);
  EXPECT_EQ(decode(*warm), decode(*cold));
  RecordProperty("cold_milliseconds", int(1000 * cold->report().build_seconds));
  RecordProperty("warm_milliseconds", int(1000 * warm->report().build_seconds));
}

TEST_F(GpuTest, TheReadRateIsThatOfADeviceMemory) {
  const auto session = open(options_for(ExecutorKind::eager));
  ASSERT_TRUE(session);
  const auto rate = session->read_rate();
  ASSERT_TRUE(rate) << rate.error().text();
  EXPECT_GT(*rate, 5e10);
  EXPECT_LT(*rate, 5e13);
  EXPECT_EQ(*rate, session->read_rate().value());
  RecordProperty("read_gigabytes_per_second", int(*rate / 1e9));
}

TEST_F(GpuTest, ASingleKernelChecksItsArguments) {
  const auto device = open_device();
  ASSERT_TRUE(device) << device.error().text();
  KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
  key.k = 256;
  key.n = 64;
  const auto kernel = (*device)->kernel(key);
  ASSERT_TRUE(kernel) << kernel.error().text();
  EXPECT_EQ((*device)->kernel(key).value(), kernel.value());
  EXPECT_GT((*device)->info(**kernel).registers, 0);
  const std::size_t count = row(key.type).params(key).size();
  std::vector<std::uint64_t> arguments(count, 0);
  EXPECT_EQ((*device)->launch(**kernel, arguments, nullptr).error().code, Code::invalid_argument);
  arguments.assign(count, 1);
  EXPECT_EQ((*device)->launch(**kernel, arguments, nullptr).error().code, Code::invalid_argument);
  arguments.pop_back();
  EXPECT_EQ((*device)->launch(**kernel, arguments, nullptr).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace lathe::testing
