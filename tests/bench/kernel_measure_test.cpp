// Holds the measuring of kernels, on the fake driver, to cold weights, all positions and routes,
// and to going on after a failure.
#include "bench/kernels/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/kernels/benchmark.h"
#include "runtime/device_impl.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::bench::kernels {
namespace {

using testing::FakeDriver;
using verification::case_at;

class KernelMeasureTest : public ::testing::Test {
 protected:
  KernelMeasureTest() {
    events_.progress = [](std::string_view, std::int64_t, std::int64_t) {};
    events_.interrupted = [this] { return interrupted_; };
    events_.note = [](const std::string&) {};
    events_.error = [this](const Error& error) { errors_.push_back(error.text()); };
    options_.repetitions = {.count = 3, .launches = 4};
    options_.depths = {0, 30};
    bench_ = open({Route::llvm});
  }

  std::unique_ptr<Workbench> open(std::vector<Route> routes) {
    DeviceOptions options;
    options.disk_cache = false;
    options.routes = std::move(routes);
    auto device = DeviceImpl::open(options, fake_.platform());
    EXPECT_TRUE(device) << device.error().text();
    auto bench = Workbench::open(std::move(*device));
    EXPECT_TRUE(bench) << bench.error().text();
    return std::move(*bench);
  }

  FakeDriver fake_{{.execute = false}};
  std::unique_ptr<Workbench> bench_;
  Options options_;
  Events events_;
  std::vector<std::string> errors_;
  bool interrupted_ = false;
};

TEST_F(KernelMeasureTest, WeightsTakeTurnsUntilThreeCachesHavePassed) {
  // 100 rows of 272 bytes: seven of them pass before 192 KiB are full.
  const auto c = case_at(*parse_key("gemv.q8_0.k256.n100.w4"), 0);
  const auto arguments = Arguments::make(*bench_, c, 20);
  ASSERT_TRUE(arguments) << arguments.error().text();
  EXPECT_EQ(arguments->launches(), 20);
  ASSERT_EQ(arguments->turns().size(), 8u);
  std::set<std::uint64_t> weights, vectors;
  for (const auto& turn : arguments->turns()) {
    ASSERT_EQ(turn.size(), 3u);
    weights.insert(turn[0]);
    vectors.insert(turn[1]);
  }
  EXPECT_EQ(weights.size(), 8u);
  EXPECT_EQ(vectors.size(), 1u);
  const auto few = Arguments::make(*bench_, c, 3);
  ASSERT_TRUE(few);
  EXPECT_EQ(few->turns().size(), 3u);
}

TEST_F(KernelMeasureTest, WithoutWeightsThereIsOneTurn) {
  const auto arguments = Arguments::make(*bench_, case_at(*parse_key("glu.f32.n64.w4"), 0), 20);
  ASSERT_TRUE(arguments);
  EXPECT_EQ(arguments->turns().size(), 1u);
}

TEST_F(KernelMeasureTest, ScarceMemoryMeansFewerLaunchesAndNoWarmWeights) {
  // 17 MB each, of the 64 MiB that the fake driver has; a quarter of it may be taken.
  const auto c = case_at(*parse_key("embed.q8_0.k4096.n4000.w4"), 0);
  const auto arguments = Arguments::make(*bench_, c, 20);
  ASSERT_TRUE(arguments) << arguments.error().text();
  EXPECT_EQ(arguments->turns().size(), 1u);
  EXPECT_EQ(arguments->launches(), 1);
}

TEST_F(KernelMeasureTest, ManyRowsRepeatTheFirst) {
  const auto c = case_at(*parse_key("gemv.q8_0.k256.n600.w4"), 0);
  const auto arguments = Arguments::make(*bench_, c, 2);
  ASSERT_TRUE(arguments);
  std::vector<std::byte> rows(600 * 272);
  ASSERT_TRUE(bench_->read(rows, arguments->turns()[1][0]));
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 256 * 272, rows.begin() + 256 * 272));
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 88 * 272, rows.begin() + 512 * 272));
  EXPECT_NE(rows[0], rows[272]);
}

TEST_F(KernelMeasureTest, EachSubjectAtEachPositionThatMakesADifference) {
  const auto subjects =
      named_subjects({"gemv.q8_0.k256.n100.w4", "attend.f16.h4.kvh2.d64.rot64.w4.s4.scale125e-3"});
  ASSERT_TRUE(subjects);
  Report report;
  measure_all(*bench_, *subjects, options_, {Route::llvm}, events_, report);
  EXPECT_EQ(errors_, std::vector<std::string>{});
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].key, "gemv.q8_0.k256.n100.w4");
  EXPECT_EQ(report.rows[0].route, "llvm");
  EXPECT_EQ(report.rows[0].seconds.size(), 3u);
  EXPECT_DOUBLE_EQ(report.rows[0].median(), 0.002 / 4);  // the fake driver's 2 ms
  const Cost cost = row(KernelType::gemv).cost((*subjects)[0].key);
  EXPECT_EQ(report.rows[0].bytes, cost.bytes_read + cost.bytes_written);
  EXPECT_EQ(report.rows[1].position, 0);
  EXPECT_EQ(report.rows[2].position, 30);
  EXPECT_EQ(report.rows[2].operations, 31 * report.rows[1].operations);
  EXPECT_EQ(fake_.leaks().find("3 device buffers"), std::string::npos);
  EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
}

TEST_F(KernelMeasureTest, ARouteMeasuresWhatItCovers) {
  bench_ = open({Route::text});
  const auto subjects = named_subjects({"elementwise.f32.n64.w4.add", "gemv.q4_k.k4096.n100.w4"});
  ASSERT_TRUE(subjects);
  Report report;
  measure_all(*bench_, *subjects, options_, {Route::text}, events_, report);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].key, "gemv.q4_k.k4096.n100.w4");
}

TEST_F(KernelMeasureTest, AFailureLeavesTheRest) {
  const auto subjects = named_subjects({"embed.f32.k4096.n8000.w4", "glu.f32.n64.w4"});
  ASSERT_TRUE(subjects);
  Report report;
  measure_all(*bench_, *subjects, options_, {Route::llvm}, events_, report);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].find("There is no device memory"), std::string::npos) << errors_[0];
  EXPECT_NE(errors_[0].find("embed.f32.k4096.n8000.w4"), std::string::npos) << errors_[0];
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].key, "glu.f32.n64.w4");
}

TEST_F(KernelMeasureTest, AnInterruptEndsIt) {
  interrupted_ = true;
  Report report;
  measure_all(*bench_, *named_subjects({"glu.f32.n64.w4"}), options_, {Route::llvm}, events_,
              report);
  EXPECT_TRUE(report.rows.empty());
}

}  // namespace
}  // namespace lathe::bench::kernels
