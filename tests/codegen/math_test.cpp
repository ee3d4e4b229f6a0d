// Owns the tests of the elementary functions in ops/math.h: their errors in units in the last
// place, over the whole range, as their comments state them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/math.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

// The distance in units of the last place of `exact` as a float.
double ulps(float actual, double exact) {
  const float near = static_cast<float>(std::fabs(exact));
  const double unit = static_cast<double>(std::nextafter(near, 1e38f)) - near;
  return std::fabs(actual - exact) / unit;
}

TEST(Math, ExponentialIsGoodToOneUlp) {
  double worst = 0;
  for (float x = -87; x < 88.7f; x += 1.7e-4f)
    worst = std::max(worst, ulps(dev::exponential(x), std::exp(static_cast<double>(x))));
  EXPECT_LE(worst, 1.1);
  EXPECT_EQ(dev::exponential(0), 1);
}

TEST(Math, ExponentialAtItsEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {88.8f, 89.0f, 100.0f, 1e30f, infinity}) EXPECT_EQ(dev::exponential(x), infinity);
  for (float x : {-87.1f, -1000.0f, -1e30f, -infinity}) {
    EXPECT_GT(dev::exponential(x), 0);
    EXPECT_LT(dev::exponential(x), 1.7e-38f);
  }
  EXPECT_TRUE(std::isnan(dev::exponential(std::nanf(""))));
}

TEST(Math, SineAndCosineKeepToTheCircle) {
  double worst = 0;
  for (int i = -500000; i <= 500000; ++i) {
    const float turns = static_cast<float>(i) * 1e-6f;
    const double angle = 2 * std::numbers::pi * static_cast<double>(turns);
    float sine, cosine;
    dev::sine_cosine(turns, sine, cosine);
    worst =
        std::max({worst, std::fabs(sine - std::sin(angle)), std::fabs(cosine - std::cos(angle))});
  }
  EXPECT_LE(worst, 1.5e-7);
}

TEST(Math, TurnsHoldAtAnyPosition) {
  verification::Random random(3);
  for (int i = 0; i < 200000; ++i) {
    const int position = random.below(1 << 20);
    const double frequency = std::exp2(-2.5 - 20.0 * random.below(1000) / 1000);
    const auto high = static_cast<float>(frequency);
    const auto low = static_cast<float>(frequency - high);
    const double exact = position * frequency;
    const double error = dev::turns_at(position, high, low) - (exact - std::nearbyint(exact));
    // Half a turn is both 0.5 and -0.5.
    ASSERT_LE(std::fabs(error - std::nearbyint(error)), 6e-8) << position << " * " << frequency;
  }
}

TEST(Math, GeluByTheErrorFunctionHolds) {
  double worst = 0;
  for (float x = -12; x < 12; x += 1.7e-4f) {
    const double exact = 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    if (x != 0) worst = std::max(worst, std::fabs(dev::gelu_erf(x) / exact - 1));
  }
  EXPECT_LE(worst, 8e-6);  // at -12: the square of x is rounded before the exponential
  EXPECT_EQ(dev::gelu_erf(0), 0);
  EXPECT_TRUE(std::isnan(dev::gelu_erf(std::nanf(""))));
}

TEST(Math, ActivationsVanishFarBelowZero) {
  for (float x : {-89.0f, -1000.0f, -1e30f}) {
    EXPECT_EQ(dev::silu(x), 0);
    EXPECT_EQ(dev::gelu_tanh(x), 0);
    EXPECT_NEAR(dev::gelu_erf(x), 0, 1e-30);
    EXPECT_EQ(dev::relu(x), 0);
    EXPECT_EQ(dev::silu(-x), -x);
    EXPECT_EQ(dev::gelu_tanh(-x), -x);
    EXPECT_EQ(dev::gelu_erf(-x), -x);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(dev::silu(infinity), infinity);
  EXPECT_EQ(dev::gelu_tanh(infinity), infinity);
  EXPECT_EQ(dev::gelu_erf(infinity), infinity);
}

}  // namespace
}  // namespace lathe::testing
