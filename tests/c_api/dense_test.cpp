// Holds dense products of the C interface to their contract, on the fake driver. The numbers are
// those of tests/runtime/emulated_products_test.cpp: here no kernel runs.
#include <array>
#include <vector>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/c_api/fixture.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {
namespace {

using DenseHandle = std::unique_ptr<lathe_dense, Close<lathe_dense_close>>;

class DenseFunctions : public ::testing::Test {
 protected:
  void TearDown() override {
    dense_.reset();
    device_.reset();
    EXPECT_EQ(fake_.leaks(), "");
    EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
  }

  DeviceHandle open_device() {
    DeviceOptions options;
    options.disk_cache = false;
    auto device = DeviceImpl::open(options, fake_.platform());
    EXPECT_TRUE(device);
    return DeviceHandle(c_api::open_device_handle(device.value()).value());
  }
  DenseHandle open_dense() {
    auto options = api::sized<lathe_dense_options>();
    options.budget_bytes = 1 << 20;
    lathe_dense* dense = nullptr;
    EXPECT_EQ(lathe_dense_open(device_.get(), &options, &dense), LATHE_OK) << last_message();
    return DenseHandle(dense);
  }
  lathe_dense_info info() {
    auto info = api::sized<lathe_dense_info>();
    EXPECT_EQ(lathe_dense_get_info(dense_.get(), &info), LATHE_OK);
    return info;
  }
  lathe_dense_key key() {
    lathe_dense_key key = {};
    EXPECT_EQ(lathe_dense_key_make(weight_.data(), sizeof weight_, "f32", 3, 2, &key), LATHE_OK);
    return key;
  }

  FakeDriver fake_{{.execute = false}};
  DeviceHandle device_ = open_device();
  DenseHandle dense_ = open_dense();
  std::array<float, 6> weight_ = {1, 2, 3, 4, 5, 6};
  std::array<float, 3> hidden_ = {1, 1, 1};
  std::array<float, 2> out_ = {};
};

TEST_F(DenseFunctions, KeepWeightsResident) {
  const lathe_dense_key of = key();
  EXPECT_REFUSED(
      lathe_dense_batch_gemv_cached(dense_.get(), &of, nullptr, hidden_.data(), 1, out_.data()),
      LATHE_NOT_FOUND, "not in the cache");
  ASSERT_EQ(lathe_dense_batch_gemv_cached(dense_.get(), &of, weight_.data(), hidden_.data(), 1,
                                          out_.data()),
            LATHE_OK)
      << last_message();
  std::int32_t resident = 0;
  ASSERT_EQ(lathe_dense_is_resident(dense_.get(), &of, &resident), LATHE_OK);
  EXPECT_EQ(resident, 1);
  ASSERT_EQ(
      lathe_dense_batch_gemv_cached(dense_.get(), &of, nullptr, hidden_.data(), 1, out_.data()),
      LATHE_OK);
  ASSERT_EQ(
      lathe_dense_batch_gemv(dense_.get(), hidden_.data(), 1, 3, 2, weight_.data(), out_.data()),
      LATHE_OK);
  EXPECT_EQ(info().products, 3);
  EXPECT_EQ(info().uploads, 2);
  EXPECT_EQ(info().cached, 1);
  EXPECT_EQ(info().budget_bytes, 1 << 20);
  ASSERT_EQ(lathe_dense_clear(dense_.get()), LATHE_OK);
  EXPECT_EQ(info().weights, 0);
}

TEST_F(DenseFunctions, PreloadCountsWhatIsNew) {
  const std::array sources = {lathe_dense_source{key(), weight_.data()}};
  std::int32_t made = -1;
  ASSERT_EQ(lathe_dense_preload(dense_.get(), sources.data(), 1, &made), LATHE_OK);
  EXPECT_EQ(made, 1);
  ASSERT_EQ(lathe_dense_preload(dense_.get(), sources.data(), 1, &made), LATHE_OK);
  EXPECT_EQ(made, 0);
  ASSERT_EQ(lathe_dense_preload_blob(dense_.get(), 7, weight_.data(), 24, &made), LATHE_OK);
  EXPECT_EQ(made, 1);
  std::uint64_t address = 0;
  ASSERT_EQ(lathe_dense_get_blob(dense_.get(), 7, &address), LATHE_OK);
  EXPECT_NE(address, 0u);
  EXPECT_REFUSED(lathe_dense_get_blob(dense_.get(), 8, &address), LATHE_NOT_FOUND, "number 8");
  EXPECT_EQ(info().blobs, 1);
}

TEST_F(DenseFunctions, RefuseWhatIsMissingOrUnknown) {
  lathe_dense_key of = key();
  const auto multiply = [&](const lathe_dense_key* which, const float* hidden) {
    return lathe_dense_batch_gemv_cached(dense_.get(), which, weight_.data(), hidden, 1,
                                         out_.data());
  };
  EXPECT_REFUSED(multiply(nullptr, hidden_.data()), LATHE_INVALID_ARGUMENT, "key is a null");
  EXPECT_REFUSED(multiply(&of, nullptr), LATHE_INVALID_ARGUMENT, "hidden is a null");
  of.bytes = -1;
  EXPECT_REFUSED(multiply(&of, hidden_.data()), LATHE_INVALID_ARGUMENT, "are 24 bytes, not -1");
  of.format = 1000;
  EXPECT_REFUSED(multiply(&of, hidden_.data()), LATHE_INVALID_ARGUMENT, "no format number 1000");
  EXPECT_REFUSED(lathe_dense_key_make(weight_.data(), 24, "q9", 3, 2, &of), LATHE_UNSUPPORTED,
                 "q9");
  EXPECT_REFUSED(lathe_dense_key_make(weight_.data(), 23, "f32", 3, 2, &of), LATHE_INVALID_ARGUMENT,
                 "are 24 bytes, not 23");
  auto options = api::sized<lathe_dense_options>();
  options.precision = 4;
  lathe_dense* dense = nullptr;
  EXPECT_REFUSED(lathe_dense_open(device_.get(), &options, &dense), LATHE_INVALID_ARGUMENT,
                 "no precision number 4");
  EXPECT_EQ(fake_.calls("cuLaunchKernel"), 0);
}

TEST_F(DenseFunctions, TheFingerprintIsFnv1a) {
  std::uint64_t fingerprint = 0;
  ASSERT_EQ(lathe_weight_fingerprint("a", 1, 0, 0, &fingerprint), LATHE_OK);
  constexpr std::uint64_t kPrime = 0x100000001b3;
  EXPECT_EQ(fingerprint, 0xaf63dc4c8601ec8cu * kPrime * kPrime);
  EXPECT_REFUSED(lathe_weight_fingerprint(nullptr, 1, 0, 0, &fingerprint), LATHE_INVALID_ARGUMENT,
                 "raw is a null");
}

}  // namespace
}  // namespace lathe::testing
