// Holds the C++ face of dense products and of their cache to what it adds to the C interface, on
// the fake driver, whose kernels are the oracles.
#include <array>
#include <cmath>
#include <vector>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/c_api/fixture.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {
namespace {

constexpr std::array<float, 6> kWeight = {1, -2, 3, 4, 5, 0.5f};

struct OnFake : api::Device {
  explicit OnFake(lathe_device* device) : api::Device(device) {}
};

class DenseWrapper : public ::testing::Test {
 protected:
  static OnFake open_device(const FakeDriver& fake) {
    DeviceOptions options;
    options.disk_cache = false;
    auto device = DeviceImpl::open(options, fake.platform());
    EXPECT_TRUE(device);
    return OnFake(c_api::open_device_handle(device.value()).value());
  }

  FakeDriver fake_;
  const std::span<const std::byte> raw_ = std::as_bytes(std::span(kWeight));
  const lathe_dense_key key_ = *api::dense_key(raw_, "f32", 3, 2);
  const std::array<float, 6> hidden_ = {1, 1, 1, 2, 0, -2};
  std::array<float, 4> out_ = {NAN, NAN, NAN, NAN};
};

// kWeight times the rows of hidden_.
constexpr std::array<float, 4> kProducts = {2, 9.5f, -4, 7};

TEST_F(DenseWrapper, MultipliesAndSharesACache) {
  {
    const OnFake device = open_device(fake_);
    auto cache = api::DenseCache::open();
    ASSERT_TRUE(cache);
    auto options = api::sized<lathe_dense_options>();
    options.cache = cache->get();
    auto products = api::DenseProducts::open(device, options);
    ASSERT_TRUE(products) << products.error().text;
    const auto missing = products->batch_gemv_cached_only(key_, hidden_, 2, out_);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().status, LATHE_NOT_FOUND);
    ASSERT_TRUE(cache->put(key_, kWeight));
    const auto multiplied = products->batch_gemv_cached_only(key_, hidden_, 2, out_);
    ASSERT_TRUE(multiplied) << multiplied.error().text;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(out_[i], kProducts[i], 1e-5);
    EXPECT_TRUE(*products->is_resident(key_));
    out_.fill(NAN);
    ASSERT_TRUE(products->batch_gemv(hidden_, 2, 3, 2, kWeight, out_));
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(out_[i], kProducts[i], 1e-5);
    ASSERT_TRUE(products->clear());
    out_.fill(NAN);
    ASSERT_TRUE(products->batch_gemv_cached(key_, raw_, hidden_, 2, out_));
    EXPECT_NEAR(out_[3], kProducts[3], 1e-5);
    EXPECT_EQ(products->info()->products, 3);
    EXPECT_EQ(products->info()->cached, 1);
    EXPECT_EQ(*cache->size(), 1);
  }
  EXPECT_EQ(fake_.leaks(), "");
  EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
}

TEST_F(DenseWrapper, KeepsWeightsAndBlobsResident) {
  const OnFake device = open_device(fake_);
  auto products = api::DenseProducts::open(device);
  ASSERT_TRUE(products);
  const std::vector<api::DenseSource> sources = {{key_, raw_}};
  EXPECT_EQ(*products->preload(sources), 1);
  EXPECT_EQ(*products->preload(sources), 0);
  EXPECT_TRUE(*products->preload_blob(7, raw_));
  EXPECT_FALSE(*products->preload_blob(7, raw_));
  EXPECT_NE(*products->blob_address(7), 0u);
  EXPECT_EQ(products->blob_address(8).error().status, LATHE_NOT_FOUND);
  EXPECT_EQ(products->info()->blobs, 1);
}

TEST_F(DenseWrapper, RefusesSpansThatAreTooShort) {
  const OnFake device = open_device(fake_);
  auto products = api::DenseProducts::open(device);
  ASSERT_TRUE(products);
  const auto says = [](const api::Result<void>& done, const char* part) {
    ASSERT_FALSE(done) << part;
    EXPECT_EQ(done.error().status, LATHE_INVALID_ARGUMENT);
    EXPECT_NE(done.error().message.find(part), std::string::npos) << done.error().message;
  };
  const std::span<const float> hidden = hidden_;
  says(products->batch_gemv(hidden.first(5), 2, 3, 2, kWeight, out_),
       "The hidden states' values are 5, not 2 rows of 3.");
  says(products->batch_gemv(hidden, 2, 3, 2, std::span(kWeight).first(5), out_),
       "The values of the weight are 5, not 2 rows of 3.");
  says(products->batch_gemv(hidden, 2, 3, 2, kWeight, std::span(out_).first(3)),
       "The places for results are 3, not 2 rows of 2.");
  says(products->batch_gemv(hidden, 0, 3, 2, kWeight, out_), "A batch of 0 vectors");
  says(products->batch_gemv_cached(key_, raw_.first(23), hidden, 2, out_),
       "The key is of 24 bytes, and 23 are given.");
  says(products->batch_gemv_cached_only(key_, hidden, 3, out_), "are 6, not 3 rows of 3");
  const std::vector<api::DenseSource> sources = {{key_, raw_.first(20)}};
  EXPECT_EQ(products->preload(sources).error().message,
            "The key is of 24 bytes, and 20 are given.");
  auto cache = api::DenseCache::open();
  ASSERT_TRUE(cache);
  says(cache->expand(key_, raw_.first(20)), "of 24 bytes, and 20");
  EXPECT_EQ(fake_.calls("cuLaunchKernel"), 0);
  EXPECT_EQ(*cache->contains(key_), false);
}

TEST_F(DenseWrapper, HasFingerprintsAndKeys) {
  EXPECT_EQ(*api::weight_fingerprint(raw_, 3, 2), weight_fingerprint(raw_, 3, 2));
  EXPECT_EQ(api::dense_key(raw_, "q9", 3, 2).error().status, LATHE_UNSUPPORTED);
  EXPECT_EQ(api::dense_key(raw_.first(8), "f32", 3, 2).error().status, LATHE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace lathe::testing
