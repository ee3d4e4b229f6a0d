// Owns the proof of every kernel on a GPU: each route's PTX, on arguments between addresses without
// memory, against the oracle within the row's bound, and bit for bit against the emulator, but
// where its PTX has instructions whose bits are not defined, or a template sums in an order of its
// own.
//
// LATHE_GPU_CASES=all runs every case; without it some twenty shapes of each family are run.
#include <gtest/gtest.h>

#include "codegen/back_edges.h"
#include "tests/codegen/kernel_runs.h"
#include "tests/codegen/ptx_text.h"
#include "tests/support/compilers.h"
#include "tests/support/gpu.h"
#include "tests/support/seed.h"

namespace lathe::testing {
namespace {

class GpuKernelTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    const Result<Gpu*> gpu = Gpu::first();
    if (!gpu) GTEST_SKIP() << gpu.error().message;
    gpu_ = *gpu;
  }

  // Runs the PTX once. Returns the arguments after it, or fails the test.
  std::vector<Bytes> launched(const KernelCase& c, const Ptx& ptx, const std::vector<Bytes>& before,
                              Placement placement) {
    Result<std::vector<Bytes>> after = gpu_run(*gpu_, c, ptx.text, before, placement);
    EXPECT_TRUE(after) << after.error().text();
    return after ? std::move(*after) : before;
  }

  void run_case(const KernelCase& c, std::uint64_t seed) {
    for (Route route : {Route::nvrtc, Route::llvm, Route::text}) {
      if (!route_covers(c.key, route) || !compilers().available(route)) continue;
      SCOPED_TRACE(route_name(route));
      const Result<Ptx> ptx = emit(c.key, gpu_->target(), route, compilers());
      ASSERT_TRUE(ptx) << ptx.error().text();
      const bool exact = (route != Route::text || template_sums_in_order(c.key)) &&
                         inexact_opcodes(ptx->text).empty();
      Random random(seed);
      Comparison comparison(c);
      for (int draw = 0; draw < draws(c); ++draw) {
        const std::vector<Bytes> arguments = make_arguments(c, random.bits());
        std::vector<Bytes> expected = arguments;
        run_oracle(c, expected);
        const std::vector<Bytes> given = device_arguments(c, arguments);
        const std::vector<Bytes> after = launched(c, *ptx, given, Placement::end);
        comparison.add(expected, after);
        EXPECT_TRUE(after == launched(c, *ptx, given, Placement::start))
            << "the result depends on where the arguments stand";
        if (exact) {
          const auto emulated = emulated_run(c, given, Placement::end, seed);
          ASSERT_TRUE(emulated) << emulated.error().text();
          EXPECT_TRUE(after == *emulated) << "bits differ from the emulator's";
        }
      }
      EXPECT_EQ(comparison.problem(), "");
      ++launches_;
    }
  }

  Gpu* gpu_ = nullptr;
  int launches_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Kernels, GpuKernelTest, ::testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(GpuKernelTest, EveryRouteMatchesOracleAndEmulator) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<KernelCase> cases = kernel_cases(GetParam());
  const bool all = path_or("LATHE_GPU_CASES", "") == "all";
  const std::size_t step = all ? 1 : 1 + cases.size() / 20;
  // A fresh start, so that over many runs every case comes.
  for (std::size_t i = seed % step; i < cases.size(); i += step) {
    SCOPED_TRACE(cases[i].text());
    run_case(cases[i], seed);
    if (HasFailure()) return;
  }
  EXPECT_GT(launches_, 0) << "no route is available";
  RecordProperty("launches", launches_);
}

// The condition that other targets' loops end in (codegen/back_edges.h) changes no bit.
TEST_P(GpuKernelTest, LoopsWithConditionsAtTheirEndsGiveTheSame) {
  const KernelCase c = kernel_cases(GetParam()).front();
  SCOPED_TRACE(c.text());
  for (Route route : {Route::nvrtc, Route::llvm, Route::text}) {
    if (!route_covers(c.key, route) || !compilers().available(route)) continue;
    const Result<Ptx> ptx = emit(c.key, gpu_->target(), route, compilers());
    ASSERT_TRUE(ptx) << ptx.error().text();
    Ptx other = *ptx;
    other.text = with_conditional_back_edges(other.text);
    if (other.text == ptx->text) continue;
    const std::vector<Bytes> given = device_arguments(c, make_arguments(c, 1));
    EXPECT_TRUE(launched(c, *ptx, given, Placement::end) ==
                launched(c, other, given, Placement::end))
        << route_name(route);
    ++launches_;
  }
  RecordProperty("launches", launches_);
}

}  // namespace
}  // namespace lathe::testing
