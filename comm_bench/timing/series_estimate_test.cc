#include <cmath>
#include <random>
#include <vector>

#include "comm_bench/timing/series.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

// 1, 2, ..., size, alternating between small and large: no autocorrelation.
std::vector<double> Ranks(int size) {
  std::vector<double> ranks;
  for (int i = 0; i < size; ++i)
    ranks.push_back(i % 2 == 0 ? 1 + i / 2 : size - i / 2);
  return ranks;
}

TEST(EstimateTest, AMedianHasTheIntervalOfItsSample) {
  const Estimate twenty = EstimateMedian(Ranks(20));
  EXPECT_EQ(twenty.value, 10.5);
  EXPECT_EQ(twenty.low, 6);
  EXPECT_EQ(twenty.high, 15);
  EXPECT_EQ(twenty.reach(), 4.5);
  EXPECT_EQ(ReachInPercent(twenty), "42.9");
  EXPECT_TRUE(std::isnan(EstimateMedian(Ranks(14)).reach()));
  EXPECT_EQ(ReachInPercent(EstimateMedian(Ranks(14))), "-");
  EXPECT_EQ(EstimateMedian(Ranks(15)).low, 4);
}

TEST(EstimateTest, ADifferenceReachesAsFarAsBothTogether) {
  const Estimate difference = Difference({10, 7, 11}, {4, 3.5, 8});
  EXPECT_EQ(difference.value, 6);
  EXPECT_EQ(difference.low, 6 - 5);  // limited by the intervals 3 and 4
  EXPECT_EQ(difference.high, 6 + std::hypot(1, 0.5));
  EXPECT_TRUE(
      std::isnan(Difference({1, 0, 2}, EstimateMedian(Ranks(2))).reach()));
}

// The intervals of repeatedly drawn samples contain the true difference at
// least at the nominal rate.
TEST(EstimateTest, IntervalsOfADifferenceHoldIt) {
  constexpr int kDraws = 4000;
  std::mt19937_64 random(1);
  std::exponential_distribution<double> slow(1), fast(4);
  const double truth = std::log(2) * (1 - 0.25);
  int held = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> a(20), b(20);
    for (double& value : a) value = slow(random);
    for (double& value : b) value = fast(random);
    const Estimate d = Difference(EstimateMedian(a), EstimateMedian(b));
    if (d.low <= truth && truth <= d.high) ++held;
  }
  EXPECT_GT(held / static_cast<double>(kDraws), 0.94);
  EXPECT_LT(held / static_cast<double>(kDraws), 0.99);
}

// By hand: medians 4 and 2 differ by a factor of 2; the lower side combines the
// factors 2 and 1.5, the upper side 1.25 and 1.
TEST(EstimateTest, ARatioHasTheIntervalsOfBothAsFactors) {
  const Estimate ratio = Ratio({4, 2, 5}, {2, 2, 3});
  EXPECT_DOUBLE_EQ(ratio.value, 2);
  EXPECT_DOUBLE_EQ(ratio.low,
                   2 / std::exp(std::hypot(std::log(2), std::log(1.5))));
  EXPECT_DOUBLE_EQ(ratio.high, 2.5);
  EXPECT_TRUE(std::isnan(Ratio(EstimateMedian({1}), {1, 1, 1}).reach()));
}

}  // namespace
}  // namespace rankwise::comm_bench
