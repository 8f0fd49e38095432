#include "analysis/cost_model/robust_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace rankwise {
namespace {

std::vector<Observation> OnThePlane(const Terms& truth, double sigma) {
  std::vector<Observation> rows;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) {
      Observation row = {{1, std::pow(4.0, i), double(j)}, 0, sigma};
      row.seconds = Predict(truth, row.terms);
      rows.push_back(row);
    }
  }
  return rows;
}

TEST(RobustFit, ExactRowsGiveTheTruth) {
  const Terms truth = {2e-6, 3e-9, 5e-6};
  const Terms fit = RobustFit(OnThePlane(truth, 0.01), 3);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(fit[i] / truth[i], 1, 1e-9);
  EXPECT_EQ(fit[3], 0);
}

TEST(RobustFit, AFifthOfTheRowsFarOffMovesItLittle) {
  const Terms truth = {2e-6, 3e-9, 5e-6};
  std::vector<Observation> rows = OnThePlane(truth, 0.01);
  for (size_t i = 1; i < rows.size(); i += 5) {
    rows[i].seconds *= i % 2 == 0 ? 5 : 0.2;
  }
  const Terms fit = RobustFit(rows, 3);
  // Least squares would be off by more than 50 %.
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(fit[i] / truth[i], 1, 0.05) << i;
}

TEST(RobustFit, ACoefficientThatWouldBeNegativeIsZeroAndTheOthersAreBest) {
  std::vector<Observation> rows;
  for (const double x : {1.0, 2.0, 3.0}) rows.push_back({{1, x}, 2 - x / 4, 1});
  const Terms fit = RobustFit(rows, 2);
  EXPECT_EQ(fit[1], 0);
  // The constant with the least squares of logarithms: the geometric mean.
  EXPECT_NEAR(fit[0], std::cbrt(1.75 * 1.5 * 1.25), 1e-6);
}

TEST(RobustFit, TermsThatRowsDoNotTellApartStayFinite) {
  std::vector<Observation> rows;
  for (const double x : {1.0, 2.0, 3.0}) {
    rows.push_back({{1, x, 2 * x}, 1 + x, 0.1});
  }
  const Terms fit = RobustFit(rows, 3);
  EXPECT_NEAR(fit[0], 1, 1e-6);
  EXPECT_NEAR(fit[1] + 2 * fit[2], 1, 1e-6);
}

TEST(RobustFit, AStartNearbyLeadsToTheSameFit) {
  std::vector<Observation> rows = OnThePlane({2e-6, 3e-9, 5e-6}, 0.01);
  const Terms start = RobustFit(rows, 3);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].seconds *= 1 + 0.01 * (i % 3);
  const Terms cold = RobustFit(rows, 3), warm = RobustFit(rows, 3, &start);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(warm[i] / cold[i], 1, 1e-4);
}

TEST(ExcessSpread, IsWhatTheResidualsHaveBeyondTheirOwn) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> residuals, sigmas;
  for (int i = 0; i < 20000; ++i) {
    sigmas.push_back(i % 2 == 0 ? 0.03 : 0.06);
    residuals.push_back(std::hypot(sigmas.back(), 0.08) * normal(random));
  }
  EXPECT_NEAR(ExcessSpread(residuals, sigmas, 20000), 0.08, 0.002);
  residuals[0] = 1e6;  // winsorised
  EXPECT_NEAR(ExcessSpread(residuals, sigmas, 20000), 0.08, 0.002);
}

TEST(ExcessSpread, IsZeroWhereTheRowsOwnErrorsExplainTheResiduals) {
  EXPECT_EQ(ExcessSpread({0.01, -0.02, 0.015}, {0.02, 0.02, 0.02}, 3), 0);
  EXPECT_EQ(ExcessSpread({0, 0}, {0.1, 0.1}, 1), 0);
}

}  // namespace
}  // namespace rankwise
