#include "analysis/stats/ratio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "analysis/stats/student.h"

namespace rankwise {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(WelchP, IsThatOfTheFormula) {
  // t = 6 / sqrt(10/5 + 2.5/5), with 2.5^2 / (2^2/4 + 0.5^2/4) degrees of
  // freedom.
  EXPECT_NEAR(WelchP({2, 4, 6, 8, 10}, {-2, -1, 0, 1, 2}),
              StudentTwoSidedP(6 / std::sqrt(2.5), 6.25 / 1.0625), 1e-12);
  EXPECT_NEAR(WelchP({2, 4, 6, 8, 10}, {-2, -1, 0, 1, 2}), 0.00936472, 1e-8);
  EXPECT_EQ(WelchP({1, 2, 3}, {3, 2, 1}), 1);
  EXPECT_TRUE(std::isnan(WelchP({1}, {1, 2})));
}

TEST(WelchP, SamplesWithoutSpreadDifferOrDoNot) {
  EXPECT_EQ(WelchP({2, 2}, {3, 3, 3}), 0);
  EXPECT_EQ(WelchP({0.1, 0.1}, {0.1, 0.1, 0.1}), 1);
}

TEST(RatioOf, IsOfGeometricMeansWithinItsInterval) {
  const Ratio ratio = RatioOf({2, 8}, {1, 1, 8});
  EXPECT_NEAR(ratio.value, 2, 1e-12);
  EXPECT_LT(ratio.interval.low, 2);
  EXPECT_GT(ratio.interval.high, 2);
  EXPECT_NEAR(ratio.interval.low * ratio.interval.high, 4, 1e-9);
}

TEST(RatioOf, TheInverseHasTheInverseInterval) {
  const std::vector<double> a = {1, 1.1, 1.3}, b = {2, 2.5};
  const Ratio ratio = RatioOf(a, b), inverse = RatioOf(b, a);
  EXPECT_NEAR(ratio.value * inverse.value, 1, 1e-12);
  EXPECT_NEAR(ratio.interval.low * inverse.interval.high, 1, 1e-9);
  EXPECT_NEAR(ratio.interval.high * inverse.interval.low, 1, 1e-9);
  EXPECT_NEAR(ratio.p_value, inverse.p_value, 1e-12);
}

TEST(RatioOf, AnEndOfTheIntervalIsWhereThePIs5Percent) {
  const std::vector<double> a = {1, 1.1, 1.3}, b = {2, 2.5};
  const Ratio ratio = RatioOf(b, a);
  std::vector<double> moved = a;
  for (double& x : moved) x *= ratio.interval.low;
  EXPECT_NEAR(RatioOf(b, moved).p_value, 0.05, 1e-9);
}

TEST(RatioOf, OneRepetitionHasNoInterval) {
  const Ratio ratio = RatioOf({3}, {2, 2});
  EXPECT_NEAR(ratio.value, 1.5, 1e-12);
  EXPECT_TRUE(std::isnan(ratio.interval.low));
  EXPECT_TRUE(std::isnan(ratio.interval.high));
  EXPECT_TRUE(std::isnan(ratio.p_value));
}

TEST(RatioOf, ConstantSamplesHaveAPointInterval) {
  const Ratio ratio = RatioOf({6, 6, 6}, {3, 3});
  EXPECT_NEAR(ratio.interval.low, 2, 1e-12);
  EXPECT_NEAR(ratio.interval.high, 2, 1e-12);
}

TEST(HolmCorrected, IsTheExampleOfItsSteps) {
  // 4 * 0.01, 3 * 0.015, then 2 * 0.03, and 0.04, which may not be below it.
  EXPECT_THAT(HolmCorrected({0.03, 0.01, 0.04, 0.015}),
              ElementsAre(DoubleNear(0.06, 1e-12), DoubleNear(0.04, 1e-12),
                          DoubleNear(0.06, 1e-12), DoubleNear(0.045, 1e-12)));
  EXPECT_THAT(HolmCorrected({0.6, 0.7}), ElementsAre(1, 1));
  EXPECT_THAT(HolmCorrected({0.2}), ElementsAre(0.2));
  EXPECT_TRUE(HolmCorrected({}).empty());
}

TEST(HolmCorrected, TestsThatWereNotMadeDoNotCount) {
  const std::vector<double> corrected =
      HolmCorrected({std::nan(""), 0.01, 0.02});
  EXPECT_TRUE(std::isnan(corrected[0]));
  EXPECT_NEAR(corrected[1], 0.02, 1e-12);
  EXPECT_NEAR(corrected[2], 0.02, 1e-12);
}

}  // namespace
}  // namespace rankwise
