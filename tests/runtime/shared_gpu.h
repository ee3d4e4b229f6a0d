// Owns the device that all tests of a suite share, so that each kernel is built once.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "lathe/runtime/device.h"
#include "runtime/driver.h"
#include "tests/runtime/scratch_directory.h"

namespace lathe::testing {

// With a disk cache of its own. Tests are skipped with the reason where there is no GPU.
class SharedGpu : public ::testing::Test {
 protected:
  static void TearDownTestSuite() {
    device_.reset();
    cache_.reset();
  }
  void SetUp() override {
    const auto driver = system_driver();
    if (!driver) GTEST_SKIP() << driver.error().message;
    if (device_) return;
    cache_ = std::make_unique<ScratchDirectory>();
    DeviceOptions options;
    options.cache_directory = cache_->path();
    auto device = Device::open(options);
    ASSERT_TRUE(device) << device.error().text();
    device_ = *device;
  }

  static inline std::unique_ptr<ScratchDirectory> cache_;
  static inline std::shared_ptr<Device> device_;
};

}  // namespace lathe::testing
