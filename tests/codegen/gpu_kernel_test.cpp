// Owns the proof of every kernel on a GPU: each route's PTX against the oracle within the row's
// bound, and the compiled routes bit for bit against the emulator, since no kernel uses an
// approximate instruction.
//
// LATHE_GPU_CASES=all runs every case; without it some twenty shapes of each family are run.
#include <gtest/gtest.h>

#include <cstring>

#include "emulation/emulator.h"
#include "tests/codegen/kernel_cases.h"
#include "tests/support/compilers.h"
#include "tests/support/gpu.h"
#include "verification/random.h"

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
  std::vector<Bytes> launched(const KernelCase& c, const Ptx& ptx,
                              const std::vector<Bytes>& before) {
    const std::vector<Param> params = row(c.key.type).params(c.key);
    const std::size_t output = params.size() - 1;
    std::vector<GpuBuffer> buffers;
    std::vector<std::uint64_t> pointers;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const bool shared = c.alias >= 0 && i == output;
      auto buffer = GpuBuffer::make(*gpu_, before[shared ? static_cast<std::size_t>(c.alias) : i],
                                    static_cast<std::size_t>(params[i].alignment));
      if (!buffer) {
        ADD_FAILURE() << buffer.error().text();
        return before;
      }
      buffers.push_back(std::move(*buffer));
      pointers.push_back(buffers.back().address());
    }
    if (c.alias >= 0) pointers[static_cast<std::size_t>(c.alias)] = pointers[output];
    const Result<void> ran = gpu_->run(ptx.text, ptx.entry, ptx.geometry, pointers);
    EXPECT_TRUE(ran) << ran.error().text();
    std::vector<Bytes> after;
    for (std::size_t i = 0; i < params.size(); ++i) {
      auto contents = buffers[i].contents();
      EXPECT_TRUE(contents) << params[i].name << ": " << contents.error().text();
      after.push_back(contents ? std::move(*contents) : before[i]);
      if (params[i].access == Access::read) {
        EXPECT_TRUE(after[i] == before[i]) << params[i].name << " changed";
      }
    }
    return after;
  }

  static std::vector<Bytes> emulated(const KernelCase& c, std::vector<Bytes> arguments,
                                     std::uint64_t seed) {
    if (c.alias >= 0) arguments.back() = arguments[static_cast<std::size_t>(c.alias)];
    std::vector<void*> pointers;
    for (Bytes& bytes : arguments) pointers.push_back(bytes.data());
    if (c.alias >= 0) pointers[static_cast<std::size_t>(c.alias)] = pointers.back();
    const Result<void> ran = emulation::emulate(c.key, pointers, seed);
    EXPECT_TRUE(ran) << ran.error().text();
    return arguments;
  }

  void run_case(const KernelCase& c, std::uint64_t seed) {
    for (Route route : {Route::nvrtc, Route::llvm, Route::text}) {
      if (!route_covers(c.key, route) || !compilers().available(route)) continue;
      SCOPED_TRACE(route_name(route));
      const Result<Ptx> ptx = emit(c.key, gpu_->target(), route, compilers());
      ASSERT_TRUE(ptx) << ptx.error().text();
      Random random(seed);
      Comparison comparison(c);
      for (int draw = 0; draw < draws(c); ++draw) {
        const std::vector<Bytes> arguments = make_arguments(c, random.bits());
        std::vector<Bytes> expected = arguments;
        run_oracle(c, expected);
        const std::vector<Bytes> given = device_arguments(c, arguments);
        const std::vector<Bytes> after = launched(c, *ptx, given);
        comparison.add(expected, after);
        if (route != Route::text && !testing::sums_in_hardware_order(c.key)) {
          EXPECT_TRUE(after == emulated(c, given, seed)) << "bits differ from the emulator's";
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
  const std::uint64_t seed = verification::fresh_seed();
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

}  // namespace
}  // namespace lathe::testing
