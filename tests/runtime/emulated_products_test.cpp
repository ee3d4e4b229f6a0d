// Holds dense products, on the fake driver with emulated kernels, to the numbers of double
// precision and to their budget.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "lathe/codegen/gemm_operand.h"
#include "lathe/runtime/dense_products.h"
#include "runtime/device_impl.h"
#include "tests/runtime/dense_numbers.h"
#include "tests/runtime/emulated_driver.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

constexpr int kIn = 40, kOut = 21;

struct Weight {
  Floats values;
  DenseWeightKey key;
  std::span<const std::byte> raw() const { return std::as_bytes(std::span(values)); }
};
Weight weight_of(std::uint64_t seed) {
  Weight out{drawn(std::size_t{kIn} * kOut, seed), {}};
  const auto key = dense_weight_key(out.raw(), Format::f32, kIn, kOut);
  EXPECT_TRUE(key);
  out.key = *key;
  return out;
}

// The relative L2 error of `batch` results.
double error_of(const Floats& hidden, const Floats& weight, const Floats& out, int batch) {
  return product_error(hidden, weight, out, batch, kIn, kOut);
}

Result<std::unique_ptr<DenseProducts>> open_products(const FakeDriver& fake,
                                                     const DenseOptions& options = {}) {
  DeviceOptions device_options;
  device_options.disk_cache = false;
  LATHE_ASSIGN(std::shared_ptr<DeviceImpl> device,
               DeviceImpl::open(device_options, fake.platform()));
  return DenseProducts::open(std::move(device), options);
}

std::int64_t operand_bytes() {
  return gemm_operand_bytes(Format::f32, kOut, kIn);
}

TEST(EmulatedProducts, AreThoseOfDoublePrecision) {
  for (const auto& [precision, bound] :
       {std::pair(Precision::faithful, 1e-6), std::pair(Precision::half, 1e-3),
        std::pair(Precision::brain, 4e-3), std::pair(Precision::eight, 6e-2)}) {
    FakeDriver fake(emulated(2, 1));
    {
      const auto products = open_products(fake, {.precision = precision});
      ASSERT_TRUE(products) << products.error().text();
      const Weight weight = weight_of(2);
      const Floats hidden = drawn(7 * kIn, 3);
      for (int batch : {1, 7}) {
        Floats out(7 * kOut, NAN);
        const auto done = (*products)->batch_gemv(hidden, batch, kIn, kOut, weight.values, out);
        ASSERT_TRUE(done) << done.error().text();
        EXPECT_LT(error_of(hidden, weight.values, out, batch), bound);
        for (std::size_t i = std::size_t(batch * kOut); i < out.size(); ++i)
          EXPECT_TRUE(std::isnan(out[i])) << i;  // of the other vectors nothing is written
        Floats kept(out.size(), NAN);
        ASSERT_TRUE((*products)->batch_gemv_cached(weight.key, weight.raw(), hidden, batch, kept));
        for (std::size_t i = 0; i < std::size_t(batch * kOut); ++i) EXPECT_EQ(kept[i], out[i]);
      }
      EXPECT_EQ((*products)->counts().products, 4);
      EXPECT_EQ((*products)->counts().uploads, 3);
    }
    EXPECT_EQ(fake.leaks(), "");
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }
}

TEST(EmulatedProducts, CachedOnlyWantsTheWeightToBeThere) {
  FakeDriver fake(emulated(2, 1));
  const auto cache = std::make_shared<DenseWeightCache>();
  const auto products = open_products(fake, {.cache = cache});
  ASSERT_TRUE(products);
  const Weight weight = weight_of(4);
  const Floats hidden = drawn(kIn, 5);
  Floats out(kOut);
  const auto missing = (*products)->batch_gemv_cached_only(weight.key, hidden, 1, out);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 0);
  ASSERT_TRUE(cache->put(weight.key, weight.values));
  ASSERT_TRUE((*products)->batch_gemv_cached_only(weight.key, hidden, 1, out));
  EXPECT_LT(error_of(hidden, weight.values, out, 1), 1e-6);
  // Resident now, whatever becomes of the cache.
  cache->clear();
  EXPECT_TRUE((*products)->is_resident(weight.key));
  ASSERT_TRUE((*products)->batch_gemv_cached_only(weight.key, hidden, 1, out));
  EXPECT_EQ((*products)->counts().uploads, 1);
  (*products)->clear();
  EXPECT_FALSE((*products)->batch_gemv_cached_only(weight.key, hidden, 1, out));
}

TEST(EmulatedProducts, TheBudgetDropsOneAtATimeAndNothingThatStays) {
  FakeDriver fake(emulated(2, 1));
  const auto products = open_products(fake, {.budget_bytes = 3 * operand_bytes() + 100});
  ASSERT_TRUE(products);
  std::vector<Weight> weights;
  for (std::uint64_t i = 0; i < 5; ++i) weights.push_back(weight_of(10 + i));
  const Floats hidden = drawn(kIn, 6);
  Floats out(kOut);
  const auto multiply = [&](std::size_t i) {
    const auto done =
        (*products)->batch_gemv_cached(weights[i].key, weights[i].raw(), hidden, 1, out);
    ASSERT_TRUE(done) << done.error().text();
    EXPECT_LT(error_of(hidden, weights[i].values, out, 1), 1e-6);
  };
  const auto made =
      (*products)->preload(std::vector<DenseSource>{{weights[0].key, weights[0].raw()}});
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(*made, 1);
  multiply(1);
  multiply(2);
  multiply(1);
  multiply(3);  // in place of 2
  EXPECT_TRUE((*products)->is_resident(weights[0].key));
  EXPECT_TRUE((*products)->is_resident(weights[1].key));
  EXPECT_FALSE((*products)->is_resident(weights[2].key));
  EXPECT_EQ((*products)->counts().weights, 3);
  EXPECT_EQ((*products)->counts().bytes, 3 * operand_bytes());
  // Those that are there are not counted, and there is no room for the fourth.
  std::vector<DenseSource> sources;
  for (const std::size_t i : {0u, 1u, 3u, 4u})
    sources.push_back({weights[i].key, weights[i].raw()});
  EXPECT_EQ(*(*products)->preload(sources), 0);
  // All stay now: what else comes is uploaded each time.
  const std::int64_t before = (*products)->counts().uploads;
  multiply(4);
  multiply(4);
  EXPECT_EQ((*products)->counts().uploads, before + 2);
  EXPECT_FALSE((*products)->is_resident(weights[4].key));
  EXPECT_EQ((*products)->counts().weights, 3);
  sources = {{weights[1].key, weights[2].raw()}};
  EXPECT_FALSE((*products)->preload(sources));
}

TEST(EmulatedProducts, BlobsAreUploadedOnce) {
  FakeDriver fake(emulated(2, 1));
  const auto products = open_products(fake, {.budget_bytes = 1000});
  ASSERT_TRUE(products);
  const Floats norms = drawn(200, 7);
  const auto bytes = std::as_bytes(std::span(norms));
  EXPECT_FALSE((*products)->preload_blob(0, bytes));
  EXPECT_FALSE((*products)->preload_blob(9, {}));
  EXPECT_TRUE(*(*products)->preload_blob(9, bytes));
  EXPECT_FALSE(*(*products)->preload_blob(9, bytes));
  const auto beyond = (*products)->preload_blob(10, bytes);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::out_of_memory);
  const auto address = (*products)->blob_address(9);
  ASSERT_TRUE(address);
  EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(*address), norms.data(), 800), 0);
  EXPECT_FALSE((*products)->blob_address(10));
  EXPECT_EQ((*products)->counts().blobs, 1);
  EXPECT_EQ((*products)->counts().bytes, 800);
}

TEST(EmulatedProducts, BadSizesAreNamedBeforeALaunch) {
  FakeDriver fake(emulated(2, 1));
  const auto products = open_products(fake);
  ASSERT_TRUE(products);
  const Weight weight = weight_of(8);
  const Floats hidden = drawn(2 * kIn, 9);
  Floats out(2 * kOut);
  const auto refusal = [&](int batch, std::size_t in, int n_in, int n_out, std::size_t weights,
                           std::size_t room) {
    const auto done = (*products)->batch_gemv(std::span(hidden).first(in), batch, n_in, n_out,
                                              std::span(weight.values).first(weights),
                                              std::span(out).first(room));
    EXPECT_FALSE(done);
    return done ? std::string() : done.error().message;
  };
  const std::size_t all = weight.values.size();
  EXPECT_NE(refusal(0, 40, kIn, kOut, all, 21).find("batch of 0"), std::string::npos);
  EXPECT_NE(refusal(2, 79, kIn, kOut, all, 42).find("and 79 are given"), std::string::npos);
  EXPECT_NE(refusal(2, 80, kIn, kOut, all, 41).find("room for 41"), std::string::npos);
  EXPECT_NE(refusal(1, 40, kIn, kOut, all - 1, 21).find("none of 21 rows"), std::string::npos);
  EXPECT_NE(refusal(1, 40, 0, kOut, all, 21).find("rows of 0"), std::string::npos);
  EXPECT_FALSE((*products)->batch_gemv_cached({}, {}, hidden, 1, out));
  // More rows than a kernel has: nothing is allocated for them.
  Floats many((1 << 20) + 1);
  const auto large = (*products)->batch_gemv(hidden, 1, 1, int(many.size()), many, many);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("n is 1048577"), std::string::npos) << large.error().text();
  EXPECT_EQ(fake.calls("cuMemAlloc"), 0);
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 0);
  EXPECT_FALSE(DenseProducts::open(nullptr, {}));
}

TEST(EmulatedProducts, ThreadsTakeTurns) {
  FakeDriver fake(emulated(1, 1));
  const auto products = open_products(fake, {.budget_bytes = 2 * operand_bytes()});
  ASSERT_TRUE(products);
  std::vector<Weight> weights;
  for (std::uint64_t i = 0; i < 3; ++i) weights.push_back(weight_of(20 + i));
  const Floats hidden = drawn(kIn, 21);
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Floats out(kOut);
      for (std::size_t i = 0; i < 2; ++i) {
        const Weight& weight = weights[(t + i) % 3];
        EXPECT_TRUE((*products)->batch_gemv_cached(weight.key, weight.raw(), hidden, 1, out));
        EXPECT_LT(error_of(hidden, weight.values, out, 1), 1e-6);
      }
    });
  }
  threads.clear();
  EXPECT_EQ((*products)->counts().products, 6);
}

}  // namespace
}  // namespace lathe::testing
