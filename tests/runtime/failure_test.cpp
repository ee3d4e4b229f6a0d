// Fails every driver call of a session, of batches and of dense products in turn: each gives a
// clear error, nothing is left behind, and nothing the driver would not forgive is done.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lathe/runtime/batch.h"
#include "lathe/runtime/dense_products.h"
#include "runtime/device_impl.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

void expect_clear(const Error& error, const std::string& failed, CUresult status) {
  EXPECT_EQ(error.code, status == CUDA_ERROR_OUT_OF_MEMORY ? Code::out_of_memory : Code::driver)
      << error.text();
  EXPECT_NE(error.text().find("call: " + failed), std::string::npos) << error.text();
  EXPECT_NE(error.text().find("status: CUDA_ERROR_FAKE"), std::string::npos) << error.text();
}

// Takes the calls that `use` makes of a driver in turn and makes each fail: what it returns is then
// a clear error, or what failed only gives something back. There are more errors than `least`.
template <typename Use>
void fail_each_call(CUresult status, const Use& use, int least = 100) {
  int failures = 0;
  bool reached_the_end = false;
  for (int index = 0; !reached_the_end; ++index) {
    FakeDriver fake({.execute = false});
    fake.fail_call(index, status);
    if (const Result<void> outcome = use(fake.platform()); !outcome) {
      ++failures;
      expect_clear(outcome.error(), fake.failed_call(), status);
    }
    const std::string failed = fake.failed_call();
    reached_the_end = failed.empty();
    // A context that cannot be entered is gone, and its handles with it; all else is given back.
    if (failed != "cuCtxPushCurrent") {
      EXPECT_EQ(fake.leaks(), "") << failed;
    }
    EXPECT_EQ(fake.violations(), std::vector<std::string>{}) << failed;
    ASSERT_LT(index, 5000);
  }
  EXPECT_GT(failures, least);
}

struct FailureCase {
  ExecutorKind kind;
  CUresult status;
};

class FailureTest : public ::testing::TestWithParam<FailureCase> {};

TEST_P(FailureTest, OfEachCallOfASession) {
  const auto file = make_model(1);
  SessionOptions options;
  options.executor = GetParam().kind;
  options.plan.context = 16;
  options.disk_cache = false;
  fail_each_call(GetParam().status, [&](const Platform& platform) -> Result<void> {
    const auto session = open_session(file, options, platform);
    if (!session) return session.error();
    Result<void> outcome = (*session)->set_sampling({.temperature = 1});
    if (outcome) outcome = (*session)->step(1);
    if (outcome) outcome = (*session)->rollback(0);
    std::vector<std::int32_t> tokens(2);
    if (outcome) outcome = (*session)->generate(2, tokens);
    if (auto token = (*session)->sampled(); outcome && !token) outcome = token.error();
    if (auto logits = (*session)->logits(); outcome && !logits) outcome = logits.error();
    if (auto rate = (*session)->read_rate(); outcome && !rate) outcome = rate.error();
    return outcome;
  });
}

INSTANTIATE_TEST_SUITE_P(All, FailureTest,
                         ::testing::Values(FailureCase{ExecutorKind::eager, CUDA_ERROR_UNKNOWN},
                                           FailureCase{ExecutorKind::graph, CUDA_ERROR_UNKNOWN},
                                           FailureCase{ExecutorKind::mega, CUDA_ERROR_UNKNOWN},
                                           FailureCase{ExecutorKind::graph,
                                                       CUDA_ERROR_OUT_OF_MEMORY}),
                         [](const auto& info) {
                           return std::string(executor_name(info.param.kind)) +
                                  (info.param.status == CUDA_ERROR_UNKNOWN ? "_unknown"
                                                                           : "_out_of_memory");
                         });

Result<void> use(Batch& batch) {
  LATHE_ASSIGN(const int one, batch.join({.temperature = 1}));
  LATHE_ASSIGN(const int other, batch.join());
  LATHE_TRY(batch.feed(one, std::vector<std::int32_t>{3, 1, 4, 1, 5, 9}));
  LATHE_TRY(batch.copy(one, other, 4));
  const BatchRow rows[] = {{one, 2}, {other, 6}, {other, 5}};
  if (const auto chosen = batch.step(rows); !chosen) return chosen.error();
  if (const auto logits = batch.logits(1); !logits) return logits.error();
  LATHE_TRY(batch.rollback(other, 4));
  if (const auto rate = batch.read_rate(); !rate) return rate.error();
  return batch.leave(one);
}

TEST(BatchFailure, OfEachCall) {
  const auto file = make_model(1);
  BatchOptions options;
  options.session.executor = ExecutorKind::graph;
  options.session.plan.context = 16;
  options.session.plan.chunk = 16;
  options.session.disk_cache = false;
  options.sequences = 2;
  options.rows = 4;
  fail_each_call(CUDA_ERROR_UNKNOWN, [&](const Platform& platform) -> Result<void> {
    const auto batch = open_batch(file, options, platform);
    return batch ? use(**batch) : batch.error();
  });
}

TEST(DenseProductsFailure, OfEachCall) {
  const std::vector<float> weight(12, 1.0f), hidden(4, 1.0f);
  const auto raw = std::as_bytes(std::span(weight));
  const DenseWeightKey key = *dense_weight_key(raw, Format::f32, 4, 3);
  const DenseWeightKey other = *dense_weight_key(raw, Format::f32, 3, 4);
  DeviceOptions options;
  options.disk_cache = false;
  const auto use_products = [&](const Platform& platform) -> Result<void> {
    LATHE_ASSIGN(std::shared_ptr<DeviceImpl> device, DeviceImpl::open(options, platform));
    LATHE_ASSIGN(const auto products, DenseProducts::open(std::move(device), {}));
    std::vector<float> out(3);
    LATHE_TRY(products->batch_gemv(hidden, 1, 4, 3, weight, out));
    LATHE_TRY(products->batch_gemv_cached(key, raw, hidden, 1, out));
    const std::vector<DenseSource> sources = {{other, raw}};
    if (const auto made = products->preload(sources); !made) return made.error();
    if (const auto made = products->preload_blob(1, raw); !made) return made.error();
    return {};
  };
  fail_each_call(CUDA_ERROR_UNKNOWN, use_products, 20);
}

TEST(FailureRecovery, AFailedStepCanBeTakenAgain) {
  const auto file = make_model(1);
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph}) {
    FakeDriver fake;
    SessionOptions options;
    options.executor = kind;
    options.plan.context = 16;
    options.disk_cache = false;
    auto disturbed = open_session(file, options, fake.platform()).value();
    auto quiet = open_session(file, options, fake.platform()).value();
    for (std::int32_t token : {5, 6, 7}) ASSERT_TRUE(quiet->step(token));
    ASSERT_TRUE(disturbed->step(5));
    fake.fail_call(3, CUDA_ERROR_UNKNOWN);  // in the launches
    EXPECT_FALSE(disturbed->step(6));
    EXPECT_EQ(disturbed->length(), 1);
    ASSERT_TRUE(disturbed->step(6));
    ASSERT_TRUE(disturbed->step(7));
    const auto expected = quiet->logits().value();
    const auto found = disturbed->logits().value();
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin()));
  }
}

}  // namespace
}  // namespace lathe::testing
