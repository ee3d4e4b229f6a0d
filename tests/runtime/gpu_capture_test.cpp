// Holds steps that a caller captures into a CUDA graph of its own to plain steps, on a real GPU.
// Skipped with the reason where there is none.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

constexpr int kReplays = 16;
constexpr std::int32_t kPrompt[] = {3, 77, 5};

// A function of the driver's that Lathe itself does not call.
template <typename Function>
Function* driver_function(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  return library ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}

class GpuCaptureTest : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  void SetUp() override {
    const auto driver = system_driver();
    if (!driver) GTEST_SKIP() << driver.error().message;
    driver_ = driver.value();
    ASSERT_EQ(driver_->cuDeviceGet(&device_, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&options_.context, device_), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuCtxPushCurrent(options_.context), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuStreamCreate(&options_.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    begin_ = driver_function<decltype(cuStreamBeginCapture)>("cuStreamBeginCapture_v2");
    end_ = driver_function<decltype(cuStreamEndCapture)>("cuStreamEndCapture");
    ASSERT_TRUE(begin_ && end_);
    options_.executor = GetParam();
    options_.plan.context = 64;
    options_.disk_cache = false;
  }
  void TearDown() override {
    if (!options_.stream) return;
    CUcontext popped = nullptr;
    EXPECT_EQ(driver_->cuStreamDestroy(options_.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(driver_->cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
  }

  const Driver* driver_ = nullptr;
  CUdevice device_ = 0;
  decltype(cuStreamBeginCapture)* begin_ = nullptr;
  decltype(cuStreamEndCapture)* end_ = nullptr;
  SessionOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Executors, GpuCaptureTest,
                         ::testing::Values(ExecutorKind::eager, ExecutorKind::graph,
                                           ExecutorKind::mega),
                         [](const auto& info) { return executor_name(info.param); });

TEST_P(GpuCaptureTest, ReplaysDecodeWhatStepsDecode) {
  const auto file = make_model();
  const auto plain = Session::open(file, options_);
  if (!plain && plain.error().code == Code::not_eligible) GTEST_SKIP() << plain.error().message;
  ASSERT_TRUE(plain) << plain.error().text();
  const auto session = Session::open(file, options_);
  ASSERT_TRUE(session) << session.error().text();
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 5}}) {
    std::vector<std::int32_t> expected, found(kReplays);
    for (const auto* each : {&plain, &session}) {
      ASSERT_TRUE((**each)->rollback(0) && (**each)->set_sampling(sampling));
      ASSERT_TRUE((**each)->feed(kPrompt));
    }
    std::int32_t token = (*plain)->sampled().value();
    const std::int32_t first = token;
    for (int i = 0; i < kReplays; ++i) {
      ASSERT_TRUE((*plain)->step(token));
      expected.push_back(token = (*plain)->sampled().value());
    }

    ASSERT_EQ(begin_(options_.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ((*session)->sampled().error().code, Code::invalid_argument);  // and spoils nothing
    const Result<void> recorded = (*session)->record_step();
    EXPECT_TRUE(recorded) << recorded.error().text();
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    ASSERT_EQ(end_(options_.stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    ASSERT_TRUE((*session)->begin_replays(first));
    for (int i = 0; i < kReplays; ++i)
      ASSERT_EQ(driver_->cuGraphLaunch(executable, options_.stream), CUDA_SUCCESS);
    const Result<void> taken = (*session)->take_replays(found);
    ASSERT_TRUE(taken) << taken.error().text();
    EXPECT_EQ(found, expected);
    EXPECT_EQ((*session)->length(), (*plain)->length());
    EXPECT_TRUE(std::ranges::equal((*session)->logits().value(), (*plain)->logits().value()));
    EXPECT_EQ(driver_->cuGraphExecDestroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(driver_->cuGraphDestroy(graph), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace lathe::testing
