#include "analysis/stats/sample_median.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

constexpr int kResamples = 20000;

// The same the slow way.
std::vector<double> DrawnOneByOne(const std::vector<double>& sample) {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<size_t> index(0, sample.size() - 1);
  std::vector<double> medians;
  for (int i = 0; i < kResamples; ++i) {
    std::vector<double> drawn;
    for (size_t j = 0; j < sample.size(); ++j) {
      drawn.push_back(sample[index(random)]);
    }
    medians.push_back(Median(drawn));
  }
  return medians;
}

class BootstrapMedianOf : public testing::TestWithParam<int> {};

TEST_P(BootstrapMedianOf, IsDistributedAsMediansOfDrawnSamples) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> lognormal;
  std::vector<double> sample;
  for (int i = 0; i < GetParam(); ++i) sample.push_back(lognormal(random));
  const SampleMedian median = BootstrapMedian(sample, kResamples, random);
  const std::vector<double> expected = DrawnOneByOne(sample);
  EXPECT_EQ(median.median, Median(sample));
  // Kolmogorov's distance between the two, at the expected's quantiles.
  for (const double q : {0.05, 0.25, 0.5, 0.75, 0.95}) {
    const double at = Quantile(expected, q);
    double below = 0, expected_below = 0;
    for (const double value : median.redrawn) below += value <= at;
    for (const double value : expected) expected_below += value <= at;
    EXPECT_NEAR(below / kResamples, expected_below / kResamples, 0.02) << q;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BootstrapMedianOf,
                         testing::Values(1, 2, 3, 10, 11, 200));

TEST(BootstrapMedian, OneValueHasNoSpread) {
  std::mt19937_64 random(1);
  const SampleMedian median = BootstrapMedian({3.0}, 100, random);
  EXPECT_EQ(median.interval.low, 3);
  EXPECT_EQ(median.interval.high, 3);
  EXPECT_EQ(median.relative_sigma, 0);
}

TEST(BootstrapMedian, TheStandardErrorIsThatOfANormalSamplesMedian) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(10, 1);
  std::vector<double> sample;
  for (int i = 0; i < 10000; ++i) sample.push_back(normal(random));
  // sqrt(pi / 2 / n) (Kenney and Keeping 1962, section 14.12), to which the
  // bootstrap converges as n^(-1/4).
  EXPECT_NEAR(BootstrapMedian(sample, 5000, random).relative_sigma,
              0.1 * 0.01253, 0.1 * 0.0025);
}

}  // namespace
}  // namespace rankwise
