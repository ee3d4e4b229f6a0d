// Holds dense products on a real GPU to the numbers of double precision. Skipped with the reason
// where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "lathe/runtime/dense_products.h"
#include "runtime/driver.h"
#include "tests/runtime/scratch_directory.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

Floats drawn(std::size_t count, std::uint64_t seed) {
  verification::Random random(seed);
  Floats out(count);
  for (float& value : out) value = random.normal();
  return out;
}

// The relative L2 error of results against those of the floats that the weight stands for.
double error_of(const Floats& hidden, std::span<const float> weight, const Floats& out, int batch,
                int n_in, int n_out) {
  double error = 0, norm = 0;
  for (int b = 0; b < batch; ++b) {
    for (int n = 0; n < n_out; ++n) {
      double sum = 0;
      const float* x = hidden.data() + std::size_t(b) * std::size_t(n_in);
      const float* w = weight.data() + std::size_t(n) * std::size_t(n_in);
      for (int i = 0; i < n_in; ++i) sum += double(x[i]) * double(w[i]);
      const double off = double(out[std::size_t(b) * std::size_t(n_out) + std::size_t(n)]) - sum;
      error += off * off;
      norm += sum * sum;
    }
  }
  return std::sqrt(error / norm);
}

class GpuProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = system_driver();
    if (!driver) GTEST_SKIP() << driver.error().message;
    DeviceOptions options;
    options.cache_directory = cache_.path();
    auto device = Device::open(options);
    ASSERT_TRUE(device) << device.error().text();
    device_ = *device;
  }

  ScratchDirectory cache_;
  std::shared_ptr<Device> device_;
};

TEST_F(GpuProducts, AreThoseOfDoublePrecision) {
  constexpr int kIn = 1000, kOut = 301;
  const Floats weight = drawn(std::size_t{kIn} * kOut, 1);
  const auto raw = std::as_bytes(std::span(weight));
  const DenseWeightKey key = *dense_weight_key(raw, Format::f32, kIn, kOut);
  for (const auto& [precision, bound] :
       {std::pair(Precision::faithful, 1e-6), std::pair(Precision::half, 1e-3),
        std::pair(Precision::brain, 4e-3)}) {
    const auto products = DenseProducts::open(device_, {.precision = precision});
    ASSERT_TRUE(products) << products.error().text();
    for (int batch : {1, 33, 200}) {
      const Floats hidden = drawn(std::size_t(batch) * kIn, std::uint64_t(batch));
      Floats out(std::size_t(batch) * kOut, NAN), kept(out);
      const auto done = (*products)->batch_gemv(hidden, batch, kIn, kOut, weight, out);
      ASSERT_TRUE(done) << done.error().text();
      EXPECT_LT(error_of(hidden, weight, out, batch, kIn, kOut), bound) << batch;
      ASSERT_TRUE((*products)->batch_gemv_cached(key, raw, hidden, batch, kept));
      EXPECT_EQ(out, kept) << batch;
    }
    EXPECT_EQ((*products)->counts().weights, 1);
  }
}

TEST_F(GpuProducts, WeightsOfAnyFormatArePreloadedWithinTheBudget) {
  constexpr int kIn = 512, kOut = 96;
  std::vector<std::vector<std::byte>> raws;
  std::vector<DenseSource> sources;
  for (std::uint64_t i = 0; i < 3; ++i) {
    std::vector<std::byte>& raw =
        raws.emplace_back(std::size_t(kOut * row_bytes(Format::q8_0, kIn)));
    row(Format::q8_0).pack(drawn(std::size_t{kIn} * kOut, i).data(), kIn * kOut, raw.data());
    sources.push_back({*dense_weight_key(raw, Format::q8_0, kIn, kOut), raw});
  }
  // An operand of 128 rows of 512 values is 256 KiB and 512 bytes.
  const auto products = DenseProducts::open(device_, {.budget_bytes = 600 << 10});
  ASSERT_TRUE(products);
  const auto made = (*products)->preload(sources);
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(*made, 2);
  const Floats hidden = drawn(5 * kIn, 9);
  for (const DenseSource& source : sources) {
    Floats weight(std::size_t{kIn} * kOut), out(5 * kOut);
    row(Format::q8_0).unpack(source.raw.data(), kIn * kOut, weight.data());
    ASSERT_TRUE((*products)->batch_gemv_cached(source.key, source.raw, hidden, 5, out));
    EXPECT_LT(error_of(hidden, weight, out, 5, kIn, kOut), 1e-6);
  }
  EXPECT_EQ((*products)->counts().weights, 2);
  EXPECT_FALSE((*products)->is_resident(sources[2].key));
}

}  // namespace
}  // namespace lathe::testing
