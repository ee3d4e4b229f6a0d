// Holds a workbench, on the fake driver, to the right launches, cold caches and clear failures.
#include "lathe/runtime/workbench.h"

#include <gtest/gtest.h>

#include "runtime/device_impl.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {
namespace {

KernelKey glu() {
  return {.type = KernelType::glu, .n = 4, .warps = 1};
}

Result<std::unique_ptr<Workbench>> open_bench(const FakeDriver& fake) {
  DeviceOptions options;
  options.disk_cache = false;
  LATHE_ASSIGN(std::shared_ptr<DeviceImpl> device, DeviceImpl::open(options, fake.platform()));
  return Workbench::open(std::move(device));
}

// Arguments of glu() in memory of the bench: gate, up, y.
Result<std::vector<std::uint64_t>> arguments_on(Workbench& bench) {
  std::vector<std::uint64_t> addresses;
  for (int i = 0; i < 3; ++i) {
    LATHE_ASSIGN(const std::uint64_t address, bench.allocate(16));
    addresses.push_back(address);
    const float values[4] = {1, 2, 3, 4};
    LATHE_TRY(bench.write(address, std::as_bytes(std::span(values))));
  }
  return addresses;
}

TEST(Workbench, RunsAKernelOnItsMemory) {
  FakeDriver fake;
  {
    const auto bench = open_bench(fake);
    ASSERT_TRUE(bench) << bench.error().text();
    EXPECT_EQ((*bench)->multiprocessors(), 4);
    EXPECT_EQ((*bench)->cache_bytes(), 64 * 1024);
    const auto arguments = arguments_on(**bench);
    ASSERT_TRUE(arguments);
    const auto kernel = (*bench)->device().kernel(glu());
    ASSERT_TRUE(kernel);
    ASSERT_TRUE((*bench)->run(**kernel, *arguments));
    float y[4] = {};
    ASSERT_TRUE((*bench)->read(std::as_writable_bytes(std::span(y)), (*arguments)[2]));
    EXPECT_NEAR(y[0], 0.7310586, 1e-6);  // silu(1) * 1
    EXPECT_NEAR(y[3], 15.712221, 1e-5);
    (*bench)->clear();
    EXPECT_EQ(fake.leaks().find("device buffer"), std::string::npos) << fake.leaks();
  }
  EXPECT_EQ(fake.leaks(), "");
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

TEST(Workbench, TimesLaunchesInARowOnArgumentsInTurn) {
  std::vector<const void*> outputs;
  FakeDriver fake({.run_kernel = [&](const KernelKey&, std::span<void* const> arguments) {
    outputs.push_back(arguments[2]);
    return Result<void>();
  }});
  const auto bench = open_bench(fake);
  ASSERT_TRUE(bench);
  std::vector<std::vector<std::uint64_t>> arguments;
  for (int i = 0; i < 3; ++i) {
    auto some = arguments_on(**bench);
    ASSERT_TRUE(some);
    arguments.push_back(std::move(*some));
  }
  const auto kernel = (*bench)->device().kernel(glu());
  ASSERT_TRUE(kernel);
  const Result<double> seconds = (*bench)->time(**kernel, arguments, 5);
  ASSERT_TRUE(seconds) << seconds.error().text();
  EXPECT_DOUBLE_EQ(*seconds, 0.002 / 5);  // the fake driver's 2 ms between any two events
  ASSERT_EQ(outputs.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(outputs[i], reinterpret_cast<void*>(arguments[i % 3][2]));
  // Two launches more: those that fill the cache.
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 7);
}

TEST(Workbench, RefusesWhatItCannotTime) {
  FakeDriver fake;
  const auto bench = open_bench(fake);
  ASSERT_TRUE(bench);
  const auto kernel = (*bench)->device().kernel(glu());
  ASSERT_TRUE(kernel);
  EXPECT_FALSE((*bench)->time(**kernel, {}, 1));
  const std::vector<std::vector<std::uint64_t>> few = {{16}};
  const Result<double> seconds = (*bench)->time(**kernel, few, 1);
  ASSERT_FALSE(seconds);
  EXPECT_NE(seconds.error().message.find("takes 3 arguments, not 1"), std::string::npos);
  EXPECT_FALSE(Workbench::open(nullptr));
}

TEST(Workbench, EveryFailureIsClearAndLeavesNothingBehind) {
  int failures = 0;
  for (int index = 0;; ++index) {
    FakeDriver fake({.execute = false});
    fake.fail_call(index, CUDA_ERROR_UNKNOWN);
    {
      Result<void> outcome;
      const auto bench = open_bench(fake);
      if (!bench) {
        outcome = bench.error();
      } else {
        auto arguments = arguments_on(**bench);
        auto kernel = (*bench)->device().kernel(glu());
        if (!arguments) outcome = arguments.error();
        if (outcome && !kernel) outcome = kernel.error();
        if (outcome) outcome = (*bench)->run(**kernel, *arguments);
        if (outcome)
          if (auto seconds = (*bench)->time(**kernel, {{*arguments}}, 2); !seconds)
            outcome = seconds.error();
        if (outcome)
          if (auto rate = (*bench)->read_rate(); !rate) outcome = rate.error();
        if (outcome)
          if (auto free = (*bench)->free_bytes(); !free) outcome = free.error();
      }
      if (!outcome) {
        ++failures;
        EXPECT_NE(outcome.error().text().find("call: " + fake.failed_call()), std::string::npos)
            << outcome.error().text();
      }
    }
    const std::string failed = fake.failed_call();
    // A context that cannot be entered is gone, and its handles with it.
    if (failed != "cuCtxPushCurrent") {
      EXPECT_EQ(fake.leaks(), "") << failed;
    }
    EXPECT_EQ(fake.violations(), std::vector<std::string>{}) << failed;
    if (failed.empty()) break;
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace lathe::testing
