#include "analysis/linear_fit.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace rankwise {
namespace {

using Points = std::vector<LinearObservation>;

// 20 + p0 x + p1 x^2.
Points Exact(double p0, double p1) {
  Points points;
  for (double x : {1, 2, 5, 9}) {
    points.push_back({20 + p0 * x + p1 * x * x, 20, {x, x * x}});
  }
  return points;
}

TEST(FitRelative, RecoversWhatIsExact) {
  const std::vector<double> fitted = FitRelative(Exact(3, -0.125));
  EXPECT_NEAR(fitted[0], 3, 1e-9);
  EXPECT_NEAR(fitted[1], -0.125, 1e-9);
}

TEST(FitRelative, WeighsErrorsAsShares) {
  // y = p x: an observation counts by (p x / y - 1)^2, so that p is the sum of
  // x / y over the sum of (x / y)^2.
  const Points points = {{1, 0, {1}}, {2000, 0, {1000}}};
  EXPECT_NEAR(FitRelative(points)[0], 1.5 / 1.25, 1e-12);
}

double Squares(const Points& points, double p0, double p1) {
  double sum = 0;
  for (const LinearObservation& point : points) {
    const double value =
        point.fixed + p0 * point.factors[0] + p1 * point.factors[1];
    sum += (value / point.observed - 1) * (value / point.observed - 1);
  }
  return sum;
}

TEST(FitRelativeNotNegative, NothingNearbyIsBetter) {
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> parameter(-1, 1), noise(0.9, 1.1);
  for (int trial = 0; trial < 100; ++trial) {
    Points points = Exact(parameter(random), 0.1 * parameter(random));
    for (LinearObservation& point : points) point.observed *= noise(random);
    const std::vector<double> fitted = FitRelativeNotNegative(points);
    ASSERT_GE(fitted[0], 0);
    ASSERT_GE(fitted[1], 0);
    const double least = Squares(points, fitted[0], fitted[1]);
    for (double d0 : {-0.01, 0.0, 0.01}) {
      for (double d1 : {-0.001, 0.0, 0.001}) {
        if (fitted[0] + d0 < 0 || fitted[1] + d1 < 0) continue;
        EXPECT_LE(least,
                  Squares(points, fitted[0] + d0, fitted[1] + d1) + 1e-12)
            << trial;
      }
    }
  }
}

TEST(FitRelativeNotNegative, UndeterminedParametersAreNotInvented) {
  // Both factors are alike: one of them takes all.
  const Points points = {{4, 1, {1, 1}}, {4, 1, {1, 1}}};
  const std::vector<double> fitted = FitRelativeNotNegative(points);
  EXPECT_NEAR(fitted[0] + fitted[1], 3, 1e-12);
  EXPECT_EQ(FitRelativeNotNegative({{1, 2, {1}}})[0], 0);
}

}  // namespace
}  // namespace rankwise
