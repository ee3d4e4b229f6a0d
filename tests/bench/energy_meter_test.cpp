// Holds the energy meter to the right device, the right unit, and a reason where it cannot measure.
#include "bench/common/energy_meter.h"

#include <gtest/gtest.h>

#include <utility>

namespace lathe::bench {
namespace {

const EnergyLibraries kFake = {LATHE_TEST_MANAGEMENT, LATHE_TEST_MANAGEMENT};

TEST(EnergyMeter, CountsJoules) {
  Result<EnergyMeter> opened = EnergyMeter::open(0, kFake);
  ASSERT_TRUE(opened) << opened.error().text();
  const EnergyMeter meter = std::move(opened).value();
  const Result<double> before = meter.joules();
  const Result<double> after = meter.joules();
  ASSERT_TRUE(before && after);
  EXPECT_NEAR(*after - *before, 0.25, 1e-9);
}

TEST(EnergyMeter, SaysWhyItCannotMeasure) {
  const Result<EnergyMeter> no_counter = EnergyMeter::open(1, kFake);
  ASSERT_FALSE(no_counter);
  EXPECT_EQ(no_counter.error().message, "nvmlDeviceGetTotalEnergyConsumption failed with status 3");
  const Result<EnergyMeter> no_device = EnergyMeter::open(7, kFake);
  ASSERT_FALSE(no_device);
  EXPECT_EQ(no_device.error().message, "cuDeviceGet failed with status 2");
  const Result<EnergyMeter> no_library =
      EnergyMeter::open(0, {"libthat_is_not_there.so", LATHE_TEST_MANAGEMENT});
  ASSERT_FALSE(no_library);
  EXPECT_NE(no_library.error().message.find("libthat_is_not_there.so"), std::string::npos);
}

TEST(EnergyMeter, NamesAMissingFunction) {
  const Result<EnergyMeter> meter = EnergyMeter::open(0, {LATHE_TEST_MANAGEMENT, "libm.so.6"});
  ASSERT_FALSE(meter);
  EXPECT_EQ(meter.error().message, "the driver has no function cuInit");
}

}  // namespace
}  // namespace lathe::bench
