#include "analysis/stats/cost_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/cost_model/runs_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int kTrials = 500;

struct Truth {
  double alpha = 2e-4, beta = 0.3e-9;
  double factor = 4;  // from one size to the next
  NoiseForTest noise = {};
  int launches = 1;
  double launch_deviation = 0;  // of a launch's logarithm, at all sizes alike

  double SecondsFor(double bytes) const { return alpha + beta * bytes; }
};

CallSeconds CallsOf(const Truth& truth, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  CallSeconds calls;
  for (int launch = 0; launch < truth.launches; ++launch) {
    const double shift = std::exp(truth.launch_deviation * normal(random));
    for (double bytes = 8; bytes <= 1 << 26; bytes *= truth.factor) {
      calls[bytes][launch] =
          CallsForTest(shift * truth.SecondsFor(bytes), truth.noise, random);
    }
  }
  return calls;
}

CostCurve Fit(const CallSeconds& calls) {
  const auto curve = FitCostCurve(calls);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.value_or(CostCurve());
}

bool Holds(const Interval& interval, double value) {
  return interval.low <= value && value <= interval.high;
}

void ExpectCovered(const ShareForTest& share, const std::string& what) {
  std::cout << "  " << share.ToString(what) << "\n";
  EXPECT_GE(share.share(), 0.90) << what;
  EXPECT_LE(share.share(), 0.99) << what;
}

// Fits kTrials seeded samples. Checks the relative bias of the mean alpha and
// beta, and how often their intervals contain the truth.
void ExpectTruthIsFound(const Truth& truth, double most_bias) {
  double alpha = 0, beta = 0;
  ShareForTest alpha_held, beta_held;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const CostLine line = Fit(CallsOf(truth, seed)).line;
    alpha += line.alpha_seconds / truth.alpha / kTrials;
    beta += line.beta_seconds_per_byte / truth.beta / kTrials;
    alpha_held.Add(Holds(line.alpha_interval, truth.alpha));
    beta_held.Add(Holds(line.beta_interval, truth.beta));
  }
  std::cout << absl::StrFormat("  bias of alpha %+.2f %%, of beta %+.2f %%\n",
                               100 * (alpha - 1), 100 * (beta - 1));
  EXPECT_NEAR(alpha, 1, most_bias);
  EXPECT_NEAR(beta, 1, most_bias);
  ExpectCovered(alpha_held, "alpha covered");
  ExpectCovered(beta_held, "beta covered");
}

// Noise of calls only: log-normal by 10 %, with a tail of 5 %.
TEST(FitCostCurve, LineHasNoBiasAtAnyNumberOfSizes) {
  for (const double factor : {2.0, 4.0, 16.0}) {
    std::cout << "  sizes times " << factor << "\n";
    ExpectTruthIsFound({.factor = factor}, 0.005);
  }
}

TEST(FitCostCurve, LineHasNoBiasAtAnyNoise) {
  for (const double deviation : {0.02, 0.05, 0.1}) {
    std::cout << "  sizes deviate by " << deviation << "\n";
    ExpectTruthIsFound({.noise = {.deviation = deviation}}, 0.02);
  }
}

TEST(FitCostCurve, LineHasNoBiasWhicheverPartIsLarger) {
  for (const double alpha : {5e-6, 5e-3}) {
    std::cout << "  alpha " << alpha << "\n";
    ExpectTruthIsFound({.alpha = alpha, .noise = {.deviation = 0.05}}, 0.02);
  }
}

TEST(FitCostCurve, LineIsCoveredWhereLaunchesDiffer) {
  ExpectTruthIsFound({.launches = 5, .launch_deviation = 0.1}, 0.02);
}

TEST(FitCostCurve, MediansAreCoveredWhereLaunchesDiffer) {
  for (const int launches : {1, 5}) {
    const Truth truth = {.launches = launches,
                         .launch_deviation = launches > 1 ? 0.1 : 0};
    ShareForTest held;
    for (uint64_t seed = 0; seed < kTrials; ++seed) {
      for (const CostPoint& point : Fit(CallsOf(truth, seed)).points) {
        held.Add(Holds(point.interval, truth.SecondsFor(point.bytes)));
      }
    }
    ExpectCovered(held, absl::StrCat("medians of ", launches, " covered"));
  }
}

TEST(FitCostCurve, ExactTimesGiveTheExactLine) {
  const CostCurve curve =
      Fit(CallsOf({.noise = {.calls = 3, .spread = 0, .tail = 0}}, /*seed=*/0));
  EXPECT_NEAR(curve.line.alpha_seconds, 2e-4, 1e-12);
  EXPECT_NEAR(curve.line.beta_seconds_per_byte, 0.3e-9, 1e-17);
  EXPECT_NEAR(curve.line.alpha_interval.low, 2e-4, 1e-10);
  EXPECT_LT(curve.median_relative_error, 1e-9);
  EXPECT_LT(curve.InterpolationError(), 1e-9);
  EXPECT_NEAR(curve.SecondsFor(1e6), 5e-4, 1e-12);
  EXPECT_NEAR(curve.SecondsFor(1e9), 0.3002, 1e-9);
  EXPECT_NEAR(curve.SecondsFor(0), 2e-4, 1e-12);
}

// An algorithm change at 30 KB: one line fits badly, the medians do not.
TEST(FitCostCurve, MediansFollowWhatOneLineDoesNot) {
  CallSeconds calls;
  const auto truth = [](double bytes) {
    return bytes < 3e4 ? 30e-6 + 1e-9 * bytes : 90e-6 + 0.25e-9 * bytes;
  };
  for (double bytes = 8; bytes <= 1 << 26; bytes *= 2) {
    calls[bytes][0] = {truth(bytes)};
  }
  const CostCurve curve = Fit(calls);
  EXPECT_GT(curve.median_relative_error, 0.1);
  EXPECT_LT(curve.InterpolationError(), 0.01);
  EXPECT_NEAR(curve.SecondsFor(10000), truth(10000), 1e-10);
  EXPECT_NEAR(curve.SecondsFor(1e6), truth(1e6), 1e-10);
}

TEST(FitCostCurve, NothingIsNegative) {
  CallSeconds falling, rising;
  for (double bytes = 8; bytes < 1e6; bytes *= 4) {
    falling[bytes][0] = {1e-3 / bytes, 1.1e-3 / bytes};
    rising[bytes][0] = {1e-9 * bytes * bytes};
  }
  const CostLine down = Fit(falling).line, up = Fit(rising).line;
  EXPECT_GT(down.alpha_seconds, 0);
  EXPECT_EQ(down.beta_seconds_per_byte, 0);
  EXPECT_GE(down.alpha_interval.low, 0);
  EXPECT_EQ(up.alpha_seconds, 0);
  EXPECT_GT(up.beta_seconds_per_byte, 0);
  EXPECT_EQ(up.alpha_interval.low, 0);
  EXPECT_TRUE(std::isfinite(up.beta_interval.high));
}

TEST(FitCostCurve, ALaunchIsOneObservation) {
  const CostCurve curve = Fit({{100, {{0, {1}}}},
                               {200, {{0, {2}}}},
                               {300, {{0, {3, 3}}, {1, {9}}}},
                               {400, {{0, {}}}},
                               {500, {{0, {0, 0}}}}});
  ASSERT_EQ(curve.points.size(), 3u);
  EXPECT_EQ(curve.points[2].bytes, 300);
  EXPECT_DOUBLE_EQ(curve.points[2].median_seconds, std::sqrt(3 * 9));
  EXPECT_GE(curve.points[2].interval.high, 9);
  EXPECT_EQ(curve.launches, 2);
}

TEST(FitCostCurve, ACallWithoutDataHasOneCost) {
  const CostCurve curve = Fit({{0, {{0, {1e-4, 3e-4, 2e-4}}}}});
  EXPECT_EQ(curve.SecondsFor(0), 2e-4);
  EXPECT_EQ(curve.line.alpha_seconds, 2e-4);
  EXPECT_EQ(curve.line.beta_seconds_per_byte, 0);
}

TEST(FitCostCurve, TooFewSizesAreRefusedWithTheirNumber) {
  const auto curve = FitCostCurve({{8, {{0, {1, 2}}}}, {16, {{0, {3}}}}});
  EXPECT_EQ(curve.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(curve.status().message()),
              HasSubstr("2 sizes: measure at least 3"));
}

TEST(CostCurve, WithoutPointsIsItsLine) {
  CostCurve curve;
  curve.line = {1e-5, 1e-9, {1e-5, 1e-5}, {1e-9, 1e-9}};
  EXPECT_DOUBLE_EQ(curve.SecondsFor(1e6), 1.01e-3);
  EXPECT_EQ(curve.PointAt(1e6).bytes, 1e6);
}

}  // namespace
}  // namespace rankwise
