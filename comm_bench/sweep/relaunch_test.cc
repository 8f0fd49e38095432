#include "comm_bench/sweep/relaunch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CollectiveRecord RecordOf(int64_t launch, int64_t rank,
                          std::vector<double> seconds) {
  CollectiveRecord record;
  record.collective = "all_reduce";
  record.bytes = 4096;
  record.count = 1024;
  record.dtype = "float32";
  record.op = "sum";
  record.launch = launch;
  record.rank = rank;
  record.start_seconds.resize(seconds.size());
  record.seconds = std::move(seconds);
  return record;
}

std::vector<LaunchSpread> Compared(const std::vector<CollectiveRecord>& all) {
  absl::StatusOr<std::vector<LaunchSpread>> rows = CompareLaunches(all);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : std::vector<LaunchSpread>();
}

// Two launches, the second a third slower.
std::vector<CollectiveRecord> TwoLaunches() {
  return {RecordOf(0, 0, {1, 2, 3, 4, 5}), RecordOf(0, 1, {1, 1, 1, 1, 1}),
          RecordOf(1, 0, {4, 4, 4, 4, 4}), RecordOf(1, 1, {1, 3, 4, 5, 7})};
}

TEST(CompareLaunches, TakesTheSlowestRankOfEachIteration) {
  const std::vector<LaunchSpread> rows = Compared(TwoLaunches());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].call.bytes, 4096);
  EXPECT_THAT(rows[0].launches, ElementsAre(0, 1));
  EXPECT_THAT(rows[0].median_seconds, ElementsAre(3, 4));
  EXPECT_NEAR(rows[0].spread, 1.0 / 3, 1e-12);
  EXPECT_NEAR(rows[0].deviation, std::sqrt(0.5) / 3.5, 1e-12);
  // Interquartile ranges of 2 / 3 and of 1 / 4.
  EXPECT_NEAR(rows[0].within, (2.0 / 3 + 1.0 / 4) / 2, 1e-12);
  EXPECT_NEAR(rows[0].seconds, std::sqrt(12.0), 1e-12);
  // Two launches: 12.7 standard errors of the mean logarithm on either side.
  const double reach = 12.7062 * std::log(4.0 / 3) / 2;
  EXPECT_NEAR(std::log(rows[0].high_seconds / rows[0].seconds), reach, 1e-6);
  EXPECT_NEAR(std::log(rows[0].seconds / rows[0].low_seconds), reach, 1e-6);
}

TEST(CompareLaunches, LeavesOutLateIterationsAndHalvesRoundTrips) {
  std::vector<CollectiveRecord> records = {RecordOf(0, 0, {2, 900, 4}),
                                           RecordOf(0, 1, {2, 1, 4})};
  for (CollectiveRecord& record : records) {
    record.late = {1};
    record.calls_per_iteration = 2;
  }
  const std::vector<LaunchSpread> rows = Compared(records);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0].median_seconds, ElementsAre(1.5));
  EXPECT_EQ(rows[0].spread, 0);
  EXPECT_EQ(rows[0].seconds, 1.5);
  EXPECT_TRUE(std::isnan(rows[0].high_seconds)) << "one launch";
}

// Returns the iterations of one launch: an offset of the launch, autocorrelated
// drift, and noise.
std::vector<double> DriftingLaunch(std::mt19937_64& random) {
  constexpr double kSeconds = 1e-3, kBetween = 0.03, kKept = 0.95;
  constexpr double kDrift = 0.01, kNoise = 0.01;
  std::normal_distribution<double> normal;
  const double launch = kBetween * normal(random);
  // Starts in the stationary distribution.
  double drift = kDrift / std::sqrt(1 - kKept * kKept) * normal(random);
  std::vector<double> seconds(40);
  for (double& one : seconds) {
    one = kSeconds * std::exp(launch + drift + kNoise * normal(random));
    drift = kKept * drift + kDrift * normal(random);
  }
  return seconds;
}

// Launches vary and iterations drift around 1 ms: 95 % of the intervals contain
// it, for any number of launches.
TEST(CompareLaunches, IntervalsHoldTheTrueTimeAsOftenAsTheySay) {
  constexpr int kStudies = 2000;
  std::mt19937_64 random(13);
  for (const int launches : {2, 3, 5, 10, 30}) {
    int held = 0;
    for (int study = 0; study < kStudies; ++study) {
      std::vector<CollectiveRecord> records;
      for (int launch = 0; launch < launches; ++launch) {
        records.push_back(RecordOf(launch, 0, DriftingLaunch(random)));
      }
      const LaunchSpread row = Compared(records).at(0);
      if (row.low_seconds <= 1e-3 && 1e-3 <= row.high_seconds) ++held;
    }
    // Four standard errors of the share of 2,000 studies.
    EXPECT_NEAR(held / static_cast<double>(kStudies), 0.95, 0.02) << launches;
  }
}

TEST(CompareLaunches, RowsAreWhatWasMeasured) {
  std::vector<CollectiveRecord> records = TwoLaunches();
  CollectiveRecord other = records[0];
  other.in_place = true;
  records.push_back(other);
  other.layer = "backend";
  records.push_back(other);
  const std::vector<LaunchSpread> rows = Compared(records);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0].call.in_place);
  EXPECT_EQ(rows[2].call.layer, "backend");
}

TEST(CompareLaunches, WhatIsMeasuredTwiceIsTwoRows) {
  const std::vector<LaunchSpread> rows =
      Compared({RecordOf(0, 0, {1}), RecordOf(0, 0, {3}), RecordOf(1, 0, {2}),
                RecordOf(1, 0, {4})});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0].median_seconds, ElementsAre(1, 2));
  EXPECT_THAT(rows[1].median_seconds, ElementsAre(3, 4));
}

TEST(CompareLaunches, RowsAndLaunchesWithoutSamplesAreLeftOut) {
  EXPECT_TRUE(Compared({}).empty());
  EXPECT_TRUE(Compared({RecordOf(0, 0, {})}).empty());
  EXPECT_THAT(Compared({RecordOf(0, 0, {}), RecordOf(2, 0, {1})})[0].launches,
              ElementsAre(2));
}

std::string ErrorOf(const std::vector<CollectiveRecord>& records) {
  const absl::Status status = CompareLaunches(records).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(CompareLaunches, RecordsThatDoNotFitAreNamed) {
  EXPECT_THAT(ErrorOf({RecordOf(0, 0, {1}), RecordOf(0, 1, {1, 2})}),
              HasSubstr("rank 1 has 2 iterations, rank 0 has 1"));
  EXPECT_THAT(
      ErrorOf({RecordOf(0, 0, {1}), RecordOf(0, 1, {1}), RecordOf(1, 0, {1})}),
      HasSubstr("all_reduce of 4096 bytes: launch 1 has records of 1 rank, "
                "launch 0 of 2"));
}

TEST(FormatLaunches, IsATable) {
  std::vector<LaunchSpread> rows = Compared(TwoLaunches());
  rows[0].median_seconds = {50e-6, 60e-6};
  rows[0].spread = 0.2;
  rows[0].deviation = 0.129;
  rows[0].within = 0.05;
  rows[0].seconds = 54.77e-6;
  rows[0].high_seconds = 66e-6;
  LaunchSpread barrier;
  barrier.call.collective = "barrier";
  barrier.call.ranks = {1, 2};
  barrier.launches = {0};
  barrier.median_seconds = {1e-5};
  barrier.seconds = 1e-5;
  barrier.high_seconds = std::nan("");
  rows.push_back(barrier);
  EXPECT_EQ(FormatLaunches(rows),
            R"(# time     of a call: geometric mean of the launches' medians
# +-CI     its 95 % interval by the launches alone: iterations of a launch are not independent
# between  of the launches' medians, largest / smallest - 1
# sd       of the launches' medians, standard deviation / mean
# within   of a launch's iterations, interquartile range / median
#    collective      size     type   op place | launches      time    +-CI   between       sd   within | medians
#                       B                     |                 us       %         %        %        % | us
     all_reduce      4096  float32  sum   out |        2     54.77    20.5      20.0     12.9      5.0 | 50.00 60.00
        barrier         -        -    -     - |        1     10.00       -       0.0      0.0      0.0 | 10.00  ranks 1,2
)");
  EXPECT_EQ(FormatLaunches({}), "");
}

}  // namespace
}  // namespace rankwise::comm_bench
