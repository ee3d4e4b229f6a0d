// Holds the statistics to values worked out by hand.
#include "bench/common/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace lathe::bench {
namespace {

TEST(Statistics, OfAnOddNumber) {
  const Statistics found = statistics(std::vector<double>{9, 2, 4});
  EXPECT_DOUBLE_EQ(found.mean, 5);
  EXPECT_DOUBLE_EQ(found.median, 4);
  EXPECT_DOUBLE_EQ(found.min, 2);
  EXPECT_DOUBLE_EQ(found.max, 9);
  EXPECT_NEAR(found.deviation, 3.605551275, 1e-9);  // sqrt((16 + 9 + 1) / 2)
}

TEST(Statistics, OfAnEvenNumberTheMedianLiesBetween) {
  EXPECT_DOUBLE_EQ(statistics(std::vector<double>{1, 10, 2, 4}).median, 3);
}

TEST(Statistics, OneValueDoesNotDeviate) {
  const Statistics found = statistics(std::vector<double>{7});
  EXPECT_DOUBLE_EQ(found.mean, 7);
  EXPECT_DOUBLE_EQ(found.median, 7);
  EXPECT_DOUBLE_EQ(found.deviation, 0);
}

TEST(Statistics, NothingIsZero) {
  EXPECT_DOUBLE_EQ(statistics({}).mean, 0);
  EXPECT_DOUBLE_EQ(statistics({}).max, 0);
}

}  // namespace
}  // namespace lathe::bench
