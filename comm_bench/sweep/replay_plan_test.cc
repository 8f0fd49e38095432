#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm_bench/sweep/recorded_traffic.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;
using Kind = ReplayAction::Kind;

RecordedTransfer Event(const std::string& op, double start, double end,
                       double wait_start = std::nan("")) {
  RecordedTransfer event;
  event.op = op;
  event.start_seconds = start;
  event.end_seconds = end;
  event.wait_start_seconds = wait_start;
  return event;
}

TrafficRecord Step(const std::vector<RecordedTransfer>& events) {
  TrafficRecord record;
  record.events = events;
  return record;
}

std::string Text(const std::vector<ReplayAction>& plan) {
  std::string text;
  for (const ReplayAction& action : plan) {
    text += (action.kind == Kind::kStart ? "start " : "wait ") +
            std::to_string(action.event);
    for (size_t event : action.after) text += " after " + std::to_string(event);
    text += "; ";
  }
  return text;
}

// Two buckets that overlap, and one after the first has ended.
TEST(ReplayPlanTest, BucketsAreStartedWhenTheirGradientsWere) {
  const auto plan =
      PlanReplay(Step({Event("all_reduce", 1, 3), Event("all_reduce", 2, 6),
                       Event("all_reduce", 5, 7)}),
                 /*lead_in_seconds=*/0.5);
  EXPECT_EQ(Text(plan), "start 0; start 1; start 2 after 0; ");
  EXPECT_DOUBLE_EQ(plan[0].gap_seconds, 0.5);
  EXPECT_DOUBLE_EQ(plan[1].gap_seconds, 1);
  // Hidden: its end matters only if it has not come by the end of the gap.
  EXPECT_DOUBLE_EQ(plan[2].gap_seconds, 3);
}

// Posts a receive, computes, waits, computes, sends.
TEST(ReplayPlanTest, ComputationAfterAWaitCountsFromTheWaitsEnd) {
  const auto plan =
      PlanReplay(Step({Event("recv", 1, 5, 3), Event("send", 9, 12, 10)}), 1);
  EXPECT_EQ(Text(plan), "start 0; wait 0; start 1; wait 1; ");
  EXPECT_DOUBLE_EQ(plan[0].gap_seconds, 0);
  EXPECT_DOUBLE_EQ(plan[1].gap_seconds, 2);
  EXPECT_DOUBLE_EQ(plan[2].gap_seconds, 4);
  EXPECT_DOUBLE_EQ(plan[3].gap_seconds, 1);
}

TEST(ReplayPlanTest, WhatIsNotObservedIsWaitedForByNobody) {
  const double unknown = std::nan("");
  const auto plan =
      PlanReplay(Step({Event("send", 1, unknown), Event("recv", 2, unknown),
                       Event("all_reduce", 4, unknown)}),
                 0);
  EXPECT_EQ(Text(plan), "start 0; start 1; start 2; ");
  EXPECT_DOUBLE_EQ(plan[2].gap_seconds, 2);
}

TEST(ReplayPlanTest, TheLeadInIsThatOfTheEarliestRank) {
  EXPECT_THAT(LeadInSeconds({Step({Event("send", 3, 4)}), Step({}),
                             Step({Event("recv", 2, 4)})}),
              ElementsAre(2, 2, 2));
  EXPECT_THAT(LeadInSeconds({Step({})}), ElementsAre(0));
}

// By each rank's clock; the second rank started 3 s after the first.
TEST(ReplayPlanTest, CommonEndsTellHowFarApartRanksBegan) {
  const TrafficRecord first =
      Step({Event("broadcast", 4, 9), Event("all_reduce", 5, 10),
            Event("all_reduce", 6, 12)});
  const TrafficRecord second =
      Step({Event("broadcast", 4, 5), Event("all_reduce", 5, 7),
            Event("all_reduce", 6, 9)});
  EXPECT_THAT(LeadInSeconds({first, second}), ElementsAre(4, 1));
  EXPECT_DOUBLE_EQ(PlanReplay(second, 1)[0].gap_seconds, 3);
}

RecordedTransfer InGroup(const std::vector<int64_t>& ranks, double start,
                         double end) {
  RecordedTransfer event = Event("all_reduce", start, end);
  event.ranks = ranks;
  return event;
}

// Ranks 0 and 1, and 1 and 2, share a group; rank 3 shares none. Rank 1 started
// 3 s after rank 0, rank 2 another 2 s later.
TEST(ReplayPlanTest, GroupsThatShareRanksTellHowFarApartTheOthersBegan) {
  EXPECT_THAT(LeadInSeconds(
                  {Step({InGroup({0, 1}, 8, 10)}),
                   Step({InGroup({0, 1}, 6, 7), InGroup({1, 2}, 8, 9)}),
                   Step({InGroup({1, 2}, 6, 7)}), Step({InGroup({3}, 9, 10)})}),
              ElementsAre(8, 5, 3, 8));
}

}  // namespace
}  // namespace rankwise::comm_bench
