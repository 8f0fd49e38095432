#include "analysis/stats/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace rankwise {
namespace {

TEST(Statistics, MeansAndStandardDeviations) {
  EXPECT_DOUBLE_EQ(Mean({1.0, 2.0, 6.0}), 3);
  EXPECT_TRUE(std::isnan(Mean({})));
  EXPECT_DOUBLE_EQ(GeometricMean({1.0, 2.0, 4.0}), 2);
  EXPECT_TRUE(std::isnan(GeometricMean({})));
  EXPECT_DOUBLE_EQ(StandardDeviation({1.0, 2.0, 6.0}), std::sqrt(7));
  EXPECT_TRUE(std::isnan(StandardDeviation({1.0})));
}

TEST(Statistics, MedianOfOddEvenAndSingle) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({7}), 7);
}

TEST(Statistics, QuantilesAreNumPys) {
  // numpy.quantile([1, 2, 4, 8, 16], [0, .1, .25, .9, 1])
  const std::vector<double> sample = {16, 1, 8, 2, 4};
  EXPECT_DOUBLE_EQ(Quantile(sample, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.25), 2);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.9), 12.8);
  EXPECT_DOUBLE_EQ(Quantile(sample, 1), 16);
}

TEST(Statistics, EmptyAndNanSamplesHaveNoQuantile) {
  EXPECT_TRUE(std::isnan(Median({})));
  EXPECT_TRUE(std::isnan(Median({1, std::nan(""), 2})));
}

TEST(Statistics, InfinitiesSortToTheEnds) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Median({inf, 1, 2}), 2);
  EXPECT_EQ(Quantile({1, 2, inf}, 1), inf);
}

}  // namespace
}  // namespace rankwise
