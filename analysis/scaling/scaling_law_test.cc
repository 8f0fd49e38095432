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
double Gustafson(double s, double n) { return n - s * (n - 1); }
double Usl(double a, double b, double n) {
  return n / (1 + a * (n - 1) + b * n * (n - 1));
}

using Law = std::function<double(double)>;

// 1, 2, 4, 8, 16 ranks without noise.
std::vector<ScalingPoint> Exact(const Law& speedup) {
  std::vector<ScalingPoint> points;
  for (double n : {1, 2, 4, 8, 16}) {
    points.push_back({n, std::vector<double>(3, 500 * speedup(n))});
  }
  return points;
}

FittedLaw Fit(ScalingLaw law, const std::vector<ScalingPoint>& points) {
  const auto fitted = FitScalingLaw(law, points, {100});
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  return *fitted;
}

TEST(FitScalingLaw, AmdahlIsRecovered) {
  const FittedLaw law =
      Fit(ScalingLaw::kAmdahl, Exact([](double n) { return Amdahl(0.07, n); }));
  ASSERT_EQ(law.parameters.size(), 1u);
  EXPECT_EQ(law.parameters[0].name, "serial fraction");
  EXPECT_NEAR(law.parameters[0].value, 0.07, 1e-12);
  EXPECT_NEAR(law.parameters[0].interval.low, 0.07, 1e-12);
  EXPECT_NEAR(law.median_relative_error, 0, 1e-12);
  EXPECT_NEAR(law.Speedup(1), 1, 1e-12);
  EXPECT_NEAR(law.Speedup(64), Amdahl(0.07, 64), 1e-9);
}

TEST(FitScalingLaw, GustafsonIsRecovered) {
  const FittedLaw law = Fit(ScalingLaw::kGustafson,
                            Exact([](double n) { return Gustafson(0.2, n); }));
  ASSERT_EQ(law.parameters.size(), 1u);
  EXPECT_NEAR(law.parameters[0].value, 0.2, 1e-12);
  EXPECT_NEAR(law.Speedup(100), Gustafson(0.2, 100), 1e-9);
}

TEST(FitScalingLaw, UslIsRecovered) {
  const FittedLaw law =
      Fit(ScalingLaw::kUsl, Exact([](double n) { return Usl(0.04, 0.01, n); }));
  ASSERT_EQ(law.parameters.size(), 2u);
  EXPECT_EQ(law.parameters[0].name, "contention");
  EXPECT_NEAR(law.parameters[0].value, 0.04, 1e-12);
  EXPECT_EQ(law.parameters[1].name, "coherency");
  EXPECT_NEAR(law.parameters[1].value, 0.01, 1e-12);
  EXPECT_NEAR(law.Speedup(100), Usl(0.04, 0.01, 100), 1e-9);
}

TEST(FitScalingLaw, NothingIsNegative) {
  const Law superlinear = [](double n) { return std::pow(n, 1.1); };
  EXPECT_EQ(Fit(ScalingLaw::kAmdahl, Exact(superlinear)).parameters[0].value,
            0);
  EXPECT_EQ(Fit(ScalingLaw::kGustafson, Exact(superlinear)).parameters[0].value,
            0);
  const FittedLaw usl = Fit(ScalingLaw::kUsl, Exact(superlinear));
  EXPECT_EQ(usl.parameters[0].value, 0);
  EXPECT_EQ(usl.parameters[1].value, 0);
}

TEST(FitScalingLaw, OneNegativeCoefficientLeavesTheOther) {
  // Unbounded, coherency would be negative; then contention is what Amdahl's
  // serial fraction is.
  const std::vector<ScalingPoint> points =
      Exact([](double n) { return Usl(0.1, -0.001, n); });
  const FittedLaw usl = Fit(ScalingLaw::kUsl, points);
  EXPECT_EQ(usl.parameters[1].value, 0);
  EXPECT_NEAR(usl.parameters[0].value,
              Fit(ScalingLaw::kAmdahl, points).parameters[0].value, 1e-12);
  // And contention negative.
  const FittedLaw coherent = Fit(
      ScalingLaw::kUsl, Exact([](double n) { return Usl(-0.01, 0.02, n); }));
  EXPECT_EQ(coherent.parameters[0].value, 0);
  EXPECT_GT(coherent.parameters[1].value, 0);
}

TEST(FitScalingLaw, MoreRanksThatAreSlowerThanTheBaseAreAllSerial) {
  const FittedLaw law = Fit(ScalingLaw::kAmdahl,
                            Exact([](double n) { return 1 / std::sqrt(n); }));
  EXPECT_EQ(law.parameters[0].value, 1);
  EXPECT_GT(law.median_relative_error, 0.4);
}

TEST(FitScalingLaw, EqualSeedsGiveEqualIntervals) {
  std::vector<ScalingPoint> points =
      Exact([](double n) { return Amdahl(0.1, n); });
  for (ScalingPoint& point : points) point.throughputs[1] *= 1.02;
  const Interval a =
      FitScalingLaw(ScalingLaw::kAmdahl, points)->parameters[0].interval;
  const Interval b =
      FitScalingLaw(ScalingLaw::kAmdahl, points)->parameters[0].interval;
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LT(a.low, 0.1);
  EXPECT_GT(a.high, 0.1);
}

TEST(FitScalingLaw, TwoRepetitionsGiveAWideButFiniteInterval) {
  std::vector<ScalingPoint> points =
      Exact([](double n) { return Usl(0.1, 0.01, n); });
  for (ScalingPoint& point : points) {
    point.throughputs = {point.throughputs[0], 1.2 * point.throughputs[0]};
  }
  // More resamples than Fit takes: the ends lie where there are few of them.
  const auto fitted = FitScalingLaw(ScalingLaw::kUsl, points, {1000});
  for (const LawParameter& p : fitted->parameters) {
    EXPECT_EQ(p.interval.low, 0) << p.name;
    EXPECT_GT(p.interval.high, 1.5 * p.value) << p.name;
    EXPECT_FALSE(std::isnan(p.interval.high)) << p.name;
  }
}

// Fits 500 seeded studies of `repetitions` runs, lognormal with deviations that
// grow from 1 % to 3 % with the world size, and counts the intervals of each
// parameter that hold the truth.
std::vector<int> Covered(ScalingLaw law, const std::vector<double>& truth,
                         const Law& speedup, int repetitions) {
  std::vector<int> covered(truth.size(), 0);
  std::mt19937_64 random(42);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<ScalingPoint> points;
    for (double n : {1, 2, 4, 8, 16}) {
      std::lognormal_distribution<double> noise(0, 0.01 + 0.005 * std::log2(n));
      ScalingPoint point{n, {}};
      for (int i = 0; i < repetitions; ++i) {
        point.throughputs.push_back(500 * speedup(n) * noise(random));
      }
      points.push_back(point);
    }
    const auto fitted = FitScalingLaw(law, points, {250, 7});
    for (size_t p = 0; p < truth.size(); ++p) {
      const Interval& interval = fitted->parameters[p].interval;
      covered[p] += interval.low <= truth[p] && truth[p] <= interval.high;
    }
  }
  return covered;
}

TEST(Intervals, CoverTheTruthIn90To99PercentOf500Trials) {
  for (int repetitions : {2, 3, 5}) {
    std::vector<int> counts = Covered(
        ScalingLaw::kAmdahl, {0.05}, [](double n) { return Amdahl(0.05, n); },
        repetitions);
    counts.push_back(Covered(
        ScalingLaw::kGustafson, {0.15},
        [](double n) { return Gustafson(0.15, n); }, repetitions)[0]);
    for (int count : Covered(
             ScalingLaw::kUsl, {0.1, 0.01},
             [](double n) { return Usl(0.1, 0.01, n); }, repetitions)) {
      counts.push_back(count);
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_GE(counts[i], 450) << i << " with " << repetitions;
      EXPECT_LE(counts[i], 495) << i << " with " << repetitions;
    }
  }
}

TEST(FitScalingLaw, SaysWhatItLacks) {
  const auto why = [](ScalingLaw law, const std::vector<ScalingPoint>& points) {
    const auto fitted = FitScalingLaw(law, points);
    EXPECT_FALSE(fitted.ok());
    return std::string(fitted.status().message());
  };
  const ScalingPoint base{1, {1, 1}}, two{2, {2, 2}};
  EXPECT_EQ(why(ScalingLaw::kUsl, {base, two, two}),
            "USL has 2 parameters, and there are 1 world sizes above the "
            "base's to fit: run more of them by --world_sizes");
  EXPECT_THAT(why(ScalingLaw::kAmdahl, {base}),
              HasSubstr("Amdahl has 1 parameter, and there are 0"));
  EXPECT_THAT(why(ScalingLaw::kAmdahl, {base, {2, {2}}}),
              HasSubstr("on 2 times the base's ranks there is 1 repetition"));
  EXPECT_THAT(why(ScalingLaw::kAmdahl, {two}),
              HasSubstr("the base case once, and there are 0"));
  EXPECT_THAT(why(ScalingLaw::kAmdahl, {base, base, two}),
              HasSubstr("the base case once, and there are 2"));
  EXPECT_THAT(why(ScalingLaw::kAmdahl, {base, {0.5, {1, 1}}}),
              HasSubstr("a point has 0.5 ranks"));
  EXPECT_THAT(why(ScalingLaw::kAmdahl, {base, {2, {1, 0}}}),
              HasSubstr("is not a number above 0"));
}

TEST(KarpFlatt, IsAmdahlsFractionOfOneSpeedup) {
  EXPECT_NEAR(KarpFlatt(Amdahl(0.03, 8), 8), 0.03, 1e-15);
  EXPECT_NEAR(KarpFlatt(4, 4), 0, 1e-15);
  EXPECT_NEAR(KarpFlatt(1, 4), 1, 1e-15);
  // Overhead that grows with N shows as a fraction that grows with N.
  EXPECT_LT(KarpFlatt(Usl(0, 0.01, 4), 4), KarpFlatt(Usl(0, 0.01, 8), 8));
}

}  // namespace

}  // namespace rankwise
