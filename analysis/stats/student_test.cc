#include "analysis/stats/student.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rankwise {
namespace {

TEST(StudentTest, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 1), 12.7062, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 2), 4.3027, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 3), 3.1824, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 10), 2.2281, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.01, 15), 2.9467, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.001, 4), 8.6103, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.5, 30), 0.6828, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 1e5), 1.96, 1e-4);
}

// By integration of the density over the tail.
double IntegratedP(double t, double degrees) {
  const double log_factor = std::lgamma((degrees + 1) / 2) -
                            std::lgamma(degrees / 2) -
                            std::log(degrees * std::numbers::pi) / 2;
  // x = t / u for u in (0, 1]: the tail is finite there.
  constexpr int kSteps = 20000;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double u = (i + 0.5) / kSteps, x = t / u;
    sum +=
        std::exp(log_factor - (degrees + 1) / 2 * std::log1p(x * x / degrees)) *
        t / (u * u);
  }
  return 2 * sum / kSteps;
}

TEST(StudentTest, DegreesOfFreedomNeedNotBeWhole) {
  for (double degrees : {1.0, 1.3, 1.9, 4.5, 17.2, 60.0}) {
    for (double t : {0.3, 1.0, 2.5, 6.0, 20.0}) {
      const double p = IntegratedP(t, degrees);
      EXPECT_NEAR(StudentTwoSidedP(t, degrees) / p, 1, 1e-5)
          << t << " of " << degrees;
      EXPECT_NEAR(StudentTwoSidedQuantile(std::max(p, 1e-9), degrees) / t, 1,
                  p > 1e-9 ? 1e-5 : 1);
    }
  }
}

TEST(StudentTest, NothingIsBeyondInfinityAndAllBeyondZero) {
  for (int degrees = 1; degrees < 40; ++degrees) {
    EXPECT_NEAR(StudentTwoSidedP(0, degrees), 1, 1e-12);
    EXPECT_NEAR(StudentTwoSidedP(1e12, degrees), 0, 1e-11);
  }
}

}  // namespace
}  // namespace rankwise
