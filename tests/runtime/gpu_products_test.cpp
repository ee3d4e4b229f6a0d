// Holds dense products on a real GPU to the numbers of double precision. Skipped with the reason
// where there is no GPU.
#include <gtest/gtest.h>

#include <vector>

#include "lathe/runtime/dense_products.h"
#include "tests/runtime/dense_numbers.h"
#include "tests/runtime/shared_gpu.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

class GpuProducts : public SharedGpu {};

TEST_F(GpuProducts, AreThoseOfDoublePrecision) {
  constexpr int kIn = 1000, kOut = 301;
  const Floats weight = drawn(std::size_t{kIn} * kOut, 1);
  const auto raw = std::as_bytes(std::span(weight));
  const DenseWeightKey key = *dense_weight_key(raw, Format::f32, kIn, kOut);
  for (const auto& [precision, bound] :
       {std::pair(Precision::faithful, 1e-6), std::pair(Precision::half, 1e-3),
        std::pair(Precision::brain, 4e-3), std::pair(Precision::eight, 6e-2)}) {
    const auto products = DenseProducts::open(device_, {.precision = precision});
    ASSERT_TRUE(products) << products.error().text();
    for (int batch : {1, 33, 200}) {
      const Floats hidden = drawn(std::size_t(batch) * kIn, std::uint64_t(batch));
      Floats out(std::size_t(batch) * kOut, NAN), kept(out);
      const auto done = (*products)->batch_gemv(hidden, batch, kIn, kOut, weight, out);
      ASSERT_TRUE(done) << done.error().text();
      EXPECT_LT(product_error(hidden, weight, out, batch, kIn, kOut), bound) << batch;
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
    EXPECT_LT(product_error(hidden, weight, out, 5, kIn, kOut), 1e-6);
  }
  EXPECT_EQ((*products)->counts().weights, 2);
  EXPECT_FALSE((*products)->is_resident(sources[2].key));
}

}  // namespace
}  // namespace lathe::testing
