#include "comm_bench/launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::DoubleNear;
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

// Two launches, of which the second is a third slower.
std::vector<CollectiveRecord> TwoLaunches() {
  return {RecordOf(0, 0, {1, 2, 3, 4, 5}), RecordOf(0, 1, {1, 1, 1, 1, 1}),
          RecordOf(1, 0, {4, 4, 4, 4, 4}), RecordOf(1, 1, {1, 3, 4, 5, 7})};
}

TEST(CompareLaunches, TakesTheSlowestRankOfEachIteration) {
  const std::vector<LaunchSpread> rows = Compared(TwoLaunches());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].row.bytes, 4096);
  EXPECT_TRUE(rows[0].row.seconds.empty());
  EXPECT_THAT(rows[0].launches, ElementsAre(0, 1));
  EXPECT_THAT(rows[0].median_seconds, ElementsAre(3, 4));
  EXPECT_NEAR(rows[0].spread, 1.0 / 3, 1e-12);
  EXPECT_NEAR(rows[0].deviation, std::sqrt(0.5) / 3.5, 1e-12);
  // Interquartile ranges of 2 / 3 and of 1 / 4.
  EXPECT_NEAR(rows[0].within, (2.0 / 3 + 1.0 / 4) / 2, 1e-12);
  EXPECT_GT(rows[0].p_value, 0.01);
  EXPECT_FALSE(rows[0].differ());
}

TEST(CompareLaunches, LeavesOutLateIterationsAndHalvesRoundTrips) {
  std::vector<CollectiveRecord> records = {RecordOf(0, 0, {2, 900, 4}),
                                           RecordOf(0, 1, {2, 1, 4})};
  for (CollectiveRecord& record : records) {
    record.late = {1};
    record.trips = 2;
  }
  const std::vector<LaunchSpread> rows = Compared(records);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0].median_seconds, ElementsAre(1.5));
  EXPECT_EQ(rows[0].spread, 0);
  EXPECT_TRUE(std::isnan(rows[0].p_value));
  EXPECT_FALSE(rows[0].differ());
}

TEST(CompareLaunches, TellsALaunchThatDiffersFromNoise) {
  std::vector<CollectiveRecord> same, different;
  for (int launch = 0; launch < 3; ++launch) {
    std::vector<double> noise, shifted;
    for (int i = 0; i < 30; ++i) {
      noise.push_back(1 + 0.01 * ((7 * i + 11 * launch) % 30));
      shifted.push_back(noise.back() + (launch == 1 ? 0.2 : 0));
    }
    same.push_back(RecordOf(launch, 0, noise));
    different.push_back(RecordOf(launch, 0, shifted));
  }
  EXPECT_FALSE(Compared(same)[0].differ());
  EXPECT_TRUE(Compared(different)[0].differ());
  EXPECT_THAT(Compared(different)[0].spread, DoubleNear(0.17, 0.02));
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
  EXPECT_FALSE(rows[0].row.in_place);
  EXPECT_EQ(rows[2].row.layer, "backend");
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
      HasSubstr("all_reduce of 4096 bytes: launch 1 has records of 1 ranks, "
                "launch 0 of 2"));
}

TEST(FormatLaunches, IsATable) {
  std::vector<LaunchSpread> rows = Compared(TwoLaunches());
  rows[0].median_seconds = {50e-6, 60e-6};
  rows[0].spread = 0.2;
  rows[0].deviation = 0.129;
  rows[0].within = 0.05;
  rows[0].p_value = 0.005;
  LaunchSpread barrier;
  barrier.row.collective = "barrier";
  barrier.row.ranks = {1, 2};
  barrier.launches = {0};
  barrier.median_seconds = {1e-5};
  barrier.p_value = std::nan("");
  rows.push_back(barrier);
  EXPECT_EQ(FormatLaunches(rows),
            R"(# between  of the launches' medians, largest / smallest - 1
# sd       of the launches' medians, standard deviation / mean
# within   of a launch's iterations, interquartile range / median
# p        of launches that do not differ looking like these (Kruskal-Wallis)
# *        launches differ by more than their iterations explain
#    collective      size     type   op place | launches  between       sd   within      p | medians
#                       B                     |                 %        %        %        | us
     all_reduce      4096  float32  sum   out |        2     20.0     12.9      5.0  0.005*| 50.00 60.00
        barrier         -        -    -     - |        1      0.0      0.0      0.0      - | 10.00  ranks 1,2
)");
  EXPECT_EQ(FormatLaunches({}), "");
}

}  // namespace
}  // namespace rankwise::comm_bench
