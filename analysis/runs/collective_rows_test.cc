#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;

CollectiveRecord Record(int64_t rank, const std::vector<double>& seconds) {
  CollectiveRecord record;
  record.rank = rank;
  record.collective = "all_reduce";
  record.bytes = 8;
  record.seconds = seconds;
  return record;
}

RunTrace RunOf(const std::vector<CollectiveRecord>& records, int64_t ranks) {
  RunTrace run{"bench.jsonl", std::vector<RankTrace>(ranks)};
  for (const CollectiveRecord& record : records) {
    run.ranks[record.rank].collectives.push_back(record);
  }
  return run;
}

TEST(CollectiveRows, TheSameTurnOfEveryRankIsOneRow) {
  const RunTrace run = RunOf(
      {Record(0, {1}), Record(0, {2}), Record(1, {3}), Record(1, {1.5})}, 2);
  const std::vector<CollectiveRow> rows = CollectiveRows(run);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].turn, 0);
  EXPECT_EQ(rows[1].turn, 1);
  for (const CollectiveRow& row : rows) EXPECT_EQ(WhyNotOneRow(row, 2), "");
  EXPECT_THAT(SlowestSeconds(rows[0]), ElementsAre(3));
  EXPECT_THAT(SlowestSeconds(rows[1]), ElementsAre(2));
}

TEST(CollectiveRows, LaunchesAndDescriptionsAreRowsOfTheirOwn) {
  std::vector<CollectiveRecord> records(3, Record(0, {1}));
  records[1].launch = 1;
  records[2].cache = "cold";
  const RunTrace run = RunOf(records, 1);
  const std::vector<CollectiveRow> rows = CollectiveRows(run);
  ASSERT_EQ(rows.size(), 3u);
  for (const CollectiveRow& row : rows) EXPECT_EQ(row.turn, 0);
}

TEST(CollectiveRows, WhatTheLibraryChoseMayBeKnownOnOneRank) {
  std::vector<CollectiveRecord> records = {Record(0, {1}), Record(1, {2})};
  records[0].algorithm = "RING";
  records[0].protocol = "LL";
  RunTrace run = RunOf(records, 2);
  std::vector<CollectiveRow> rows = CollectiveRows(run);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(AlgorithmOf(rows[0]).algorithm, "RING");
  EXPECT_EQ(AlgorithmOf(rows[0]).protocol, "LL");
  EXPECT_EQ(WhyNotOneRow(rows[0], 2), "");
  run.ranks[1].collectives[0].algorithm = "TREE";
  rows = CollectiveRows(run);
  EXPECT_EQ(WhyNotOneRow(rows.at(0), 2),
            "rank 1 ran TREE , and another RING LL");
}

TEST(CollectiveRows, WaysOfTimingAndLaunchingAreRowsOfTheirOwn) {
  std::vector<CollectiveRecord> records(4, Record(0, {1}));
  records[1].timing = "events";
  records[2].graph = true;
  records[3].registered = true;
  EXPECT_EQ(CollectiveRows(RunOf(records, 1)).size(), 4u);
}

TEST(SlowestSeconds, LateIterationsDoNotCountAndTripsDivide) {
  std::vector<CollectiveRecord> records = {Record(0, {1, 9, 3}),
                                           Record(1, {2, 9, 1})};
  records[1].late = {1};
  for (CollectiveRecord& record : records) record.calls_per_iteration = 2;
  const RunTrace run = RunOf(records, 2);
  EXPECT_THAT(SlowestSeconds(CollectiveRows(run).at(0)), ElementsAre(1, 1.5));
}

TEST(WhyNotOneRow, NamesMissingRanksAndRanksThatDisagree) {
  RunTrace run = RunOf({Record(0, {1, 2})}, 2);
  EXPECT_EQ(WhyNotOneRow(CollectiveRows(run).at(0), 2),
            "has the records of 1 of 2 ranks");
  run = RunOf({Record(0, {1, 2}), Record(1, {1})}, 2);
  EXPECT_EQ(WhyNotOneRow(CollectiveRows(run).at(0), 2),
            "ranks 0 and 1 disagree about its iterations");
}

TEST(WhyNotOneRow, AGroupIsWholeWithItsOwnRanks) {
  std::vector<CollectiveRecord> records = {Record(1, {1}), Record(2, {1})};
  for (CollectiveRecord& record : records) record.ranks = {1, 2};
  RunTrace run = RunOf(records, 4);
  EXPECT_EQ(WhyNotOneRow(CollectiveRows(run).at(0), 4), "");
  run.ranks[2].collectives.clear();
  EXPECT_EQ(WhyNotOneRow(CollectiveRows(run).at(0), 4),
            "has the records of 1 of 2 ranks");
}

TEST(WhyNotOneRow, APairsPingPongIsToldByItsLowerRank) {
  CollectiveRecord record = Record(1, {1});
  record.collective = "ping_pong";
  record.sync = "none";
  record.ranks = {1, 2};
  const RunTrace run = RunOf({record}, 3);
  EXPECT_EQ(WhyNotOneRow(CollectiveRows(run).at(0), 3), "");
}

}  // namespace
}  // namespace rankwise
