#include "analysis/cost_model/loggp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/collective_samples.h"
#include "analysis/cost_model/samples_for_test.h"
#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr double kL = 50e-6, kO = 12e-6, kG = 20e-6, kGByte = 0.4e-9;

// Seconds of one call, as comm_bench divides an iteration by its trips.
double Seconds(const std::string& collective, int64_t in_flight, double k) {
  if (collective == "ping_pong") return kL + 2 * kO + (k - 1) * kGByte;
  const auto calls = static_cast<double>(in_flight);
  return (kL + 3 * kO + (calls - 1) * kG + calls * (k - 1) * kGByte) / calls;
}

CollectiveSamples Rows(const std::string& collective, int64_t in_flight,
                       const NoiseForTest& noise, std::mt19937_64& random,
                       int64_t world_size = 2) {
  CollectiveSamples samples = {collective, "gloo", world_size, in_flight, {}};
  for (double bytes = 8; bytes < 1e7; bytes *= 4) {
    samples.sizes.push_back(
        {bytes,
         CallsForTest(Seconds(collective, in_flight, bytes), noise, random)});
  }
  return samples;
}

std::vector<CollectiveSamples> AllRows(const NoiseForTest& noise,
                                       uint64_t seed) {
  std::mt19937_64 random(seed);
  return {Rows("ping_pong", 1, noise, random),
          Rows("send_recv", 1, noise, random),
          Rows("send_recv", 8, noise, random)};
}

void ExpectCovered(const ShareForTest& share, const std::string& what) {
  std::cout << "  " << share.ToString(what + " covered") << "\n";
  EXPECT_GE(share.share(), 0.90) << what;
  EXPECT_LE(share.share(), 0.99) << what;
}

void ExpectTruthIsCovered(const NoiseForTest& noise) {
  ShareForTest latency, overhead, gap, per_byte;
  const auto holds = [](const Interval& interval, double value) {
    return interval.low <= value && value <= interval.high;
  };
  for (int trial = 0; trial < 500; ++trial) {
    const auto fit =
        FitLogGP(AllRows(noise, trial),
                 {.resamples = 200, .seed = static_cast<uint64_t>(trial)});
    ASSERT_TRUE(fit.ok()) << fit.status();
    latency.Add(holds(fit->latency_interval, kL));
    overhead.Add(holds(fit->overhead_interval, kO));
    gap.Add(holds(fit->gap_interval, kG));
    per_byte.Add(holds(fit->gap_per_byte_interval, kGByte));
  }
  ExpectCovered(latency, "L");
  ExpectCovered(overhead, "o");
  ExpectCovered(gap, "g");
  ExpectCovered(per_byte, "G");
}

TEST(FitLogGP, ExactRowsGiveTheTruth) {
  const auto fit =
      FitLogGP(AllRows({.calls = 3, .spread = 0, .tail = 0}, /*seed=*/0));
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->latency_seconds / kL, 1, 1e-6);
  EXPECT_NEAR(fit->overhead_seconds / kO, 1, 1e-6);
  EXPECT_NEAR(fit->gap_seconds / kG, 1, 1e-6);
  EXPECT_NEAR(fit->gap_seconds_per_byte / kGByte, 1, 1e-6);
}

TEST(FitLogGP, IntervalsCoverTheTruth) { ExpectTruthIsCovered({}); }

TEST(FitLogGP, IntervalsCoverTheTruthWhereSizesDeviate) {
  ExpectTruthIsCovered({.deviation = 0.04});
}

TEST(FitLogGP, TakesTheSmallestWorldSizeThatHasWhatItTakes) {
  std::mt19937_64 random(1);
  const NoiseForTest exact = {.calls = 3, .spread = 0, .tail = 0};
  std::vector<CollectiveSamples> rows;
  for (const CollectiveSamples& row : AllRows(exact, 0)) {
    rows.push_back(row);
    rows.back().world_size = 4;
  }
  CollectiveSamples other = Rows("ping_pong", 1, exact, random);
  for (CostSamples& size : other.sizes) {
    for (double& seconds : size.seconds) seconds *= 10;
  }
  rows.push_back(other);
  const auto fit = FitLogGP(rows);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->latency_seconds / kL, 1, 1e-6);
}

TEST(FitLogGP, SaysWhatToMeasure) {
  std::vector<CollectiveSamples> rows = AllRows({}, 1);
  for (size_t missing : {0, 1, 2}) {
    std::vector<CollectiveSamples> some = rows;
    some.erase(some.begin() + missing);
    const auto fit = FitLogGP(some);
    EXPECT_EQ(fit.status().code(), absl::StatusCode::kNotFound) << missing;
    EXPECT_THAT(std::string(fit.status().message()),
                HasSubstr("--collectives=send_recv --in_flight=8"));
  }
}

}  // namespace
}  // namespace rankwise
