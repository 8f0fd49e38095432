#include "analysis/ledger/expected_maximum.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

template <typename Distribution>
std::vector<std::vector<double>> Draw(int ranks, int steps,
                                      Distribution distribution) {
  std::mt19937_64 random(7);
  std::vector<std::vector<double>> samples(ranks);
  for (std::vector<double>& sample : samples) {
    for (int i = 0; i < steps; ++i) sample.push_back(distribution(random));
  }
  return samples;
}

TEST(ExpectedMaximumTest, OneSampleIsItsMean) {
  EXPECT_DOUBLE_EQ(ExpectedMaximum({{1, 2, 6}}), 3);
}

TEST(ExpectedMaximumTest, EqualsTheMeanOverAllCombinations) {
  // Of (1|4) and (2|3|7): 2, 3, 7, 4, 4, 7.
  EXPECT_NEAR(ExpectedMaximum({{4, 1}, {3, 7, 2}}), 27.0 / 6, 1e-12);
}

TEST(ExpectedMaximumTest, CountsValuesThatComeSeveralTimes) {
  EXPECT_NEAR(ExpectedMaximum({{1, 1, 1, 5}, {1, 1, 1, 5}}),
              1 + 4 * (1 - 0.75 * 0.75), 1e-12);
}

TEST(ExpectedMaximumTest, MatchesTheOrderStatisticsOfNormalNoise) {
  // Mean of the largest of N standard normal variables (Harter 1961).
  const double expected[] = {0.56419, 0.84628, 1.02938, 1.16296};
  for (int ranks = 2; ranks <= 5; ++ranks) {
    EXPECT_NEAR(ExpectedMaximum(Draw(ranks, 50000,
                                     std::normal_distribution<double>(10, 2))),
                10 + 2 * expected[ranks - 2], 0.02)
        << ranks;
  }
}

TEST(ExpectedMaximumTest, MatchesTheOrderStatisticsOfOtherNoise) {
  EXPECT_NEAR(
      ExpectedMaximum(Draw(9, 50000, std::uniform_real_distribution<double>())),
      0.9, 0.002);
  double harmonic = 0;
  for (int n = 1; n <= 64; ++n) harmonic += 1.0 / n;
  EXPECT_NEAR(
      ExpectedMaximum(Draw(64, 20000, std::exponential_distribution<double>())),
      harmonic, 0.03);
}

TEST(ExpectedMaximumTest, FollowsTheRankThatIsAlwaysLargest) {
  auto samples = Draw(3, 50000, std::normal_distribution<double>(10, 1));
  for (double& value : samples[1]) value += 50;
  EXPECT_NEAR(ExpectedMaximum(samples), 60, 0.02);
}

TEST(ExpectedMaximumTest, HoldsForMoreRanksThanADoubleHasRangeFor) {
  // The product starts at 1e-3 to the power of 200.
  const std::vector<std::vector<double>> samples(
      200, Draw(1, 1000, std::uniform_real_distribution<double>())[0]);
  EXPECT_NEAR(ExpectedMaximum(samples), 200.0 / 201, 0.005);
}

}  // namespace
}  // namespace rankwise
