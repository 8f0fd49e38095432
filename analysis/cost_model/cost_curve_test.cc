#include "analysis/cost_model/cost_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/samples_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int kTrials = 500;

struct Line {
  double alpha = 0, beta = 0;
  double end = std::numeric_limits<double>::infinity();  // bytes, exclusive
};

struct Truth {
  std::vector<Line> lines;
  double factor = 4;  // from one size to the next
  NoiseForTest noise = {};
  int launches = 1;
  double launch_deviation = 0;  // of a launch's logarithm, at all sizes alike
};

const Line& LineAt(const Truth& truth, double bytes) {
  size_t i = 0;
  while (bytes >= truth.lines[i].end) ++i;
  return truth.lines[i];
}

std::vector<CostSamples> SamplesOf(const Truth& truth, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<CostSamples> samples;
  for (int launch = 0; launch < truth.launches; ++launch) {
    const double shift = std::exp(truth.launch_deviation * normal(random));
    for (double bytes = 8; bytes <= 1 << 26; bytes *= truth.factor) {
      const Line& line = LineAt(truth, bytes);
      const double seconds = shift * (line.alpha + line.beta * bytes);
      samples.push_back(
          {bytes, CallsForTest(seconds, truth.noise, random), launch});
    }
  }
  return samples;
}

bool Holds(const Interval& interval, double value) {
  return interval.low <= value && value <= interval.high;
}

// The ends of the true lines lie between the same sizes as the found ones.
bool SameEnds(const CostCurve& curve, const Truth& truth) {
  if (curve.segments.size() != truth.lines.size()) return false;
  for (size_t i = 0; i + 1 < truth.lines.size(); ++i) {
    for (const CostPoint& point : curve.points) {
      if ((point.bytes < truth.lines[i].end) !=
          (point.bytes < curve.segments[i].max_bytes)) {
        return false;
      }
    }
  }
  return true;
}

struct Coverage {
  ShareForTest same_ends;
  std::vector<ShareForTest> alpha, beta;  // by line
};

// A line counts as covered by the segment that holds its middle size, also
// where the ends are wrong.
Coverage Measure(const Truth& truth, const std::vector<double>& middles) {
  Coverage coverage;
  coverage.alpha.resize(truth.lines.size());
  coverage.beta.resize(truth.lines.size());
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto curve =
        FitCostCurve(SamplesOf(truth, trial),
                     {.resamples = 200, .seed = static_cast<uint64_t>(trial)});
    EXPECT_TRUE(curve.ok()) << curve.status();
    if (!curve.ok()) return coverage;
    coverage.same_ends.Add(SameEnds(*curve, truth));
    for (size_t i = 0; i < truth.lines.size(); ++i) {
      const CostSegment& segment = curve->SegmentFor(middles[i]);
      coverage.alpha[i].Add(
          Holds(segment.alpha_interval, truth.lines[i].alpha));
      coverage.beta[i].Add(Holds(segment.beta_interval, truth.lines[i].beta));
    }
  }
  return coverage;
}

void ExpectCovered(const ShareForTest& share, const std::string& what) {
  std::cout << "  " << share.ToString(what) << "\n";
  EXPECT_GE(share.share(), 0.90) << what;
  EXPECT_LE(share.share(), 0.99) << what;
}

void ExpectTruthIsFound(const Truth& truth,
                        const std::vector<double>& middles) {
  const Coverage coverage = Measure(truth, middles);
  std::cout << "  " << coverage.same_ends.ToString("changes found") << "\n";
  EXPECT_GE(coverage.same_ends.share(), 0.95);
  for (size_t i = 0; i < truth.lines.size(); ++i) {
    const std::string line = " of line " + std::to_string(i) + " covered";
    ExpectCovered(coverage.alpha[i], "alpha" + line);
    ExpectCovered(coverage.beta[i], "beta" + line);
  }
}

const std::vector<Line> kOneLine = {{2e-4, 0.3e-9}};
const std::vector<Line> kTwoLines = {{30e-6, 1e-9, 3e4}, {90e-6, 0.25e-9}};

TEST(FitCostCurve, OneLineIsCoveredAndNotCut) {
  ExpectTruthIsFound({kOneLine}, {4096});
}

TEST(FitCostCurve, OneLineIsCoveredWhereSizesDeviateFromIt) {
  ExpectTruthIsFound({kOneLine, 4, {.deviation = 0.05}}, {4096});
}

TEST(FitCostCurve, OneLineIsCoveredWhereLaunchesDiffer) {
  ExpectTruthIsFound({kOneLine, 4, {}, 5, 0.1}, {4096});
}

TEST(FitCostCurve, AChangeIsFoundAndBothLinesAreCovered) {
  ExpectTruthIsFound({kTwoLines}, {512, 1 << 20});
}

TEST(FitCostCurve, AChangeIsFoundWhereSizesDeviateFromTheLines) {
  ExpectTruthIsFound({kTwoLines, 2, {.deviation = 0.05}}, {512, 1 << 20});
}

TEST(FitCostCurve, ExactTimesGiveExactLines) {
  const auto curve = FitCostCurve(SamplesOf(
      {kTwoLines, 4, {.calls = 3, .spread = 0, .tail = 0}}, /*seed=*/0));
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_EQ(curve->segments.size(), 2u);
  EXPECT_NEAR(curve->segments[0].alpha_seconds, 30e-6, 1e-12);
  EXPECT_NEAR(curve->segments[0].beta_seconds_per_byte, 1e-9, 1e-15);
  EXPECT_NEAR(curve->segments[1].alpha_seconds, 90e-6, 1e-12);
  EXPECT_NEAR(curve->segments[1].beta_seconds_per_byte, 0.25e-9, 1e-15);
  EXPECT_DOUBLE_EQ(curve->segments[0].max_bytes, curve->segments[1].min_bytes);
  EXPECT_EQ(curve->segments[0].min_bytes, 0);
  EXPECT_TRUE(std::isinf(curve->segments[1].max_bytes));
  EXPECT_LT(curve->median_relative_error, 1e-9);
  EXPECT_NEAR(curve->SecondsFor(1e6), 90e-6 + 0.25e-3, 1e-10);
}

TEST(FitCostCurve, OneSizeFarOffMovesTheLineLittleAndCutsNothing) {
  for (size_t far_off = 0; far_off < 12; ++far_off) {
    std::vector<CostSamples> samples = SamplesOf({kOneLine}, /*seed=*/7);
    for (double& seconds : samples[far_off].seconds) seconds *= 3;
    const auto curve = FitCostCurve(samples);
    ASSERT_TRUE(curve.ok()) << curve.status();
    EXPECT_EQ(curve->segments.size(), 1u) << far_off;
    EXPECT_NEAR(curve->segments[0].alpha_seconds, 2e-4, 0.15 * 2e-4) << far_off;
    EXPECT_NEAR(curve->segments[0].beta_seconds_per_byte, 0.3e-9, 0.35 * 0.3e-9)
        << far_off;
  }
}

TEST(FitCostCurve, NothingIsNegative) {
  // Times that fall with the size.
  std::vector<CostSamples> samples;
  for (double bytes = 8; bytes < 1e6; bytes *= 4) {
    samples.push_back({bytes, {1e-3 / bytes, 1.1e-3 / bytes}});
  }
  const auto curve = FitCostCurve(samples, {.max_segments = 1});
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_GE(curve->segments[0].alpha_seconds, 0);
  EXPECT_EQ(curve->segments[0].beta_seconds_per_byte, 0);
  EXPECT_GE(curve->segments[0].alpha_interval.low, 0);
}

TEST(FitCostCurve, SamplesOfOneSizeAreTakenTogetherInAnyOrder) {
  const auto curve = FitCostCurve({{300, {3, 3}},
                                   {100, {1}},
                                   {200, {2}},
                                   {300, {9}},
                                   {400, {}},
                                   {500, {0, 0}}});
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_EQ(curve->points.size(), 3u);
  EXPECT_EQ(curve->points[2].bytes, 300);
  EXPECT_EQ(curve->points[2].median_seconds, 3);
}

TEST(FitCostCurve, TooFewSizesAreRefusedWithTheirNumber) {
  const auto curve = FitCostCurve({{8, {1}}, {8, {2}}, {16, {3}}});
  EXPECT_EQ(curve.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(curve.status().message()),
              HasSubstr("2 sizes: measure at least 3"));
}

TEST(FitCostCurve, EqualSeedsGiveEqualIntervals) {
  const std::vector<CostSamples> samples = SamplesOf({kOneLine}, 1);
  const auto a = FitCostCurve(samples), b = FitCostCurve(samples);
  EXPECT_EQ(a->segments[0].alpha_interval.low,
            b->segments[0].alpha_interval.low);
  EXPECT_LT(a->segments[0].alpha_interval.low, a->segments[0].alpha_seconds);
  EXPECT_GT(a->segments[0].alpha_interval.high, a->segments[0].alpha_seconds);
}

TEST(FitCostCurve, ManySizesAreFittedToo) {
  const auto curve = FitCostCurve(SamplesOf({kTwoLines, 1.05}, 1));
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_GT(curve->points.size(), 300u);
  ASSERT_EQ(curve->segments.size(), 2u);
  EXPECT_NEAR(curve->segments[0].max_bytes, 3e4, 1.5e4);
}

}  // namespace
}  // namespace rankwise
