#include "analysis/scaling/scaling_law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::HasSubstr;

double Amdahl(double s, double n) { return 1 / (s + (1 - s) / n); }
using Law = std::function<double(double)>;

// 1, 2, 4, 8, 16 ranks without noise.
std::vector<ScalingPoint> Exact(const Law& speedup) {
  std::vector<ScalingPoint> points;
  for (double n : {1, 2, 4, 8, 16}) {
    points.push_back({n, std::vector<double>(3, 500 * speedup(n))});
  }
  return points;
}

AmdahlsLaw Fit(const Law& speedup) {
  const auto fitted = FitAmdahl(Exact(speedup), {100});
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  return *fitted;
}

TEST(FitAmdahl, RecoversTheLaw) {
  const AmdahlsLaw law = Fit([](double n) { return Amdahl(0.07, n); });
  EXPECT_NEAR(law.serial_fraction, 0.07, 1e-12);
  EXPECT_NEAR(law.interval.low, 0.07, 1e-12);
  EXPECT_NEAR(law.median_relative_error, 0, 1e-12);
  EXPECT_NEAR(law.Speedup(1), 1, 1e-12);
  EXPECT_NEAR(law.Speedup(64), Amdahl(0.07, 64), 1e-9);
}

TEST(FitAmdahl, NothingIsNegative) {
  EXPECT_EQ(Fit([](double n) { return std::pow(n, 1.1); }).serial_fraction, 0);
}

TEST(FitAmdahl, MoreRanksThatAreSlowerThanTheBaseAreAllSerial) {
  const AmdahlsLaw law = Fit([](double n) { return 1 / std::sqrt(n); });
  EXPECT_EQ(law.serial_fraction, 1);
  EXPECT_GT(law.median_relative_error, 0.4);
}

TEST(FitAmdahl, EqualSeedsGiveEqualIntervals) {
  std::vector<ScalingPoint> points =
      Exact([](double n) { return Amdahl(0.1, n); });
  for (ScalingPoint& point : points) point.throughputs[1] *= 1.02;
  const Interval a = FitAmdahl(points)->interval;
  const Interval b = FitAmdahl(points)->interval;
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LT(a.low, 0.1);
  EXPECT_GT(a.high, 0.1);
}

TEST(FitAmdahl, TwoRepetitionsGiveAWideButFiniteInterval) {
  std::vector<ScalingPoint> points =
      Exact([](double n) { return Amdahl(0.1, n); });
  for (ScalingPoint& point : points) {
    point.throughputs = {point.throughputs[0], 1.2 * point.throughputs[0]};
  }
  // More resamples than in Fit: the interval's ends lie in sparse regions.
  const auto fitted = FitAmdahl(points, {1000});
  EXPECT_EQ(fitted->interval.low, 0);
  EXPECT_GT(fitted->interval.high, 1.5 * fitted->serial_fraction);
  EXPECT_FALSE(std::isnan(fitted->interval.high));
}

// Fits 500 seeded studies of `repetitions` runs, lognormal with deviations
// growing from 1 % to 3 % with the world size. Returns the number of intervals
// that contain the truth.
int Covered(double truth, int repetitions) {
  int covered = 0;
  std::mt19937_64 random(42);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<ScalingPoint> points;
    for (double n : {1, 2, 4, 8, 16}) {
      std::lognormal_distribution<double> noise(0, 0.01 + 0.005 * std::log2(n));
      ScalingPoint point{n, {}};
      for (int i = 0; i < repetitions; ++i)
        point.throughputs.push_back(500 * Amdahl(truth, n) * noise(random));
      points.push_back(point);
    }
    const Interval interval = FitAmdahl(points, {250, 7})->interval;
    covered += interval.low <= truth && truth <= interval.high;
  }
  return covered;
}

TEST(Intervals, CoverTheTruthIn90To99PercentOf500Trials) {
  for (int repetitions : {2, 3, 5}) {
    const int count = Covered(0.05, repetitions);
    EXPECT_GE(count, 450) << repetitions;
    EXPECT_LE(count, 495) << repetitions;
  }
}

TEST(FitAmdahl, SaysWhatItLacks) {
  const auto why = [](const std::vector<ScalingPoint>& points) {
    const auto fitted = FitAmdahl(points);
    EXPECT_FALSE(fitted.ok());
    return std::string(fitted.status().message());
  };
  const ScalingPoint base{1, {1, 1}}, two{2, {2, 2}};
  EXPECT_THAT(why({base}), HasSubstr("a world size above the base's"));
  EXPECT_THAT(why({base, {2, {2}}}),
              HasSubstr("on 2 times the base's ranks there is 1 repetition"));
  EXPECT_THAT(why({two}), HasSubstr("the base case once, and there are 0"));
  EXPECT_THAT(why({base, base, two}),
              HasSubstr("the base case once, and there are 2"));
  EXPECT_THAT(why({base, {0.5, {1, 1}}}), HasSubstr("a point has 0.5 ranks"));
  EXPECT_THAT(why({base, {2, {1, 0}}}), HasSubstr("is not a number above 0"));
}

TEST(KarpFlatt, IsAmdahlsFractionOfOneSpeedup) {
  EXPECT_NEAR(KarpFlatt(Amdahl(0.03, 8), 8), 0.03, 1e-15);
  EXPECT_NEAR(KarpFlatt(4, 4), 0, 1e-15);
  EXPECT_NEAR(KarpFlatt(1, 4), 1, 1e-15);
  // Overhead that grows with N yields a fraction that grows with N.
  const auto with_overhead = [](double n) {
    return n / (1 + 0.01 * n * (n - 1));
  };
  EXPECT_LT(KarpFlatt(with_overhead(4), 4), KarpFlatt(with_overhead(8), 8));
}

}  // namespace

}  // namespace rankwise
