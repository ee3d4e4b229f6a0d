// Owns the tests of dense products beside those of every kernel: what rounding to e4m3 costs, and
// what becomes of rows that have no numbers, or extreme ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "emulation/emulator.h"
#include "lathe/codegen/gemm_operand.h"
#include "tests/codegen/kernel_cases.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

constexpr int kRows = 3, kColumns = 5, kDepth = 700;

Floats drawn(int rows, std::uint64_t seed) {
  verification::Random random(seed);
  Floats out(static_cast<std::size_t>(rows) * kDepth);
  for (float& value : out) value = random.normal();
  return out;
}

Bytes bytes_of(const Floats& numbers) {
  Bytes out(numbers.size() * 4);
  std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

// Both kernels by the emulator, without the oracles' help.
Floats product(Format form, const Floats& x, const Floats& w) {
  const auto run = [](const KernelKey& key, std::vector<Bytes> arguments) {
    arguments.emplace_back(static_cast<std::size_t>(row(key.type).params(key).back().bytes),
                           std::byte{0xff});
    std::vector<void*> pointers;
    for (Bytes& bytes : arguments) pointers.push_back(bytes.data());
    const Result<void> ran = emulation::emulate(key, pointers, 1);
    EXPECT_TRUE(ran) << ran.error().text();
    return arguments.back();
  };
  KernelKey operand{.type = KernelType::gemm_operand, .format = form, .k = kDepth};
  operand.n = kRows;
  const Bytes of_x = run(operand, {bytes_of(x)});
  operand.n = kColumns;
  const Bytes of_w = run(operand, {bytes_of(w)});
  KernelKey gemm{.type = KernelType::gemm, .format = form, .k = kDepth, .n = kColumns};
  gemm.tokens = kRows;
  gemm.warps = 8;
  const Bytes y = run(gemm, {of_x, of_w});
  Floats out(kRows * kColumns);
  std::memcpy(out.data(), y.data(), y.size());
  return out;
}

double relative_error(const Floats& x, const Floats& w, const Floats& y) {
  double error = 0, norm = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kColumns; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < kDepth; ++i)
        sum += static_cast<double>(x[r * kDepth + i]) * static_cast<double>(w[c * kDepth + i]);
      error += std::pow(static_cast<double>(y[r * kColumns + c]) - sum, 2);
      norm += sum * sum;
    }
  }
  return std::sqrt(error / norm);
}

// The figure of docs/dense-products.md.
TEST(GemmOfEights, RoundingCostsWhatIsStated) {
  double sum = 0;
  constexpr int kDraws = 16;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const Floats x = drawn(kRows, 2 * i), w = drawn(kColumns, 2 * i + 1);
    const double error = relative_error(x, w, product(Format::fp8_e4m3, x, w));
    EXPECT_LT(error, 6e-2);
    sum += error * error;
  }
  const double mean = std::sqrt(sum / kDraws);
  RecordProperty("mean_error", std::to_string(mean));
  EXPECT_GT(mean, 3e-2);
  EXPECT_LT(mean, 4e-2);
}

TEST(GemmOfEights, FactorsTakeRowsOfAnySize) {
  const Floats x = drawn(kRows, 1), w = drawn(kColumns, 2);
  const Floats plain = product(Format::fp8_e4m3, x, w);
  Floats scaled = x, shrunk = w;
  for (float& value : scaled) value *= 0x1p124f;
  for (float& value : shrunk) value *= 0x1p-110f;
  const Floats moved = product(Format::fp8_e4m3, scaled, shrunk);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(moved[i], plain[i] * 0x1p14f) << i;
}

TEST(GemmOfEights, RowsOfZerosGiveZerosAndRowsWithoutNumbersNone) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float none : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    Floats x = drawn(kRows, 3);
    const Floats w = drawn(kColumns, 4);
    x[kDepth + 699] = none;
    for (std::size_t i = 0; i < kDepth; ++i) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    const Floats y = product(Format::fp8_e4m3, x, w);
    for (std::size_t c = 0; c < kColumns; ++c) {
      EXPECT_EQ(y[c], 0.0f);
      EXPECT_TRUE(std::isnan(y[kColumns + c]));
      EXPECT_TRUE(std::isfinite(y[2 * kColumns + c]));
    }
  }
}

TEST(GemmOfEights, TheGreatestOfARowIsKept) {
  for (const float greatest : {1.0f, 448.0f, 3.0e38f, 1e-35f, 0.1f}) {
    const float numbers[] = {0.1f * greatest, -greatest, 0.0f};
    double rounded[3];
    round_gemm_row(numbers, rounded);
    EXPECT_NEAR(rounded[1], -greatest, 1e-6 * static_cast<double>(greatest));
    EXPECT_NEAR(rounded[0], 0.1 * greatest, 0.1 * 0x1p-4 * static_cast<double>(greatest));
    EXPECT_EQ(rounded[2], 0.0);
  }
}

}  // namespace
}  // namespace lathe::testing
