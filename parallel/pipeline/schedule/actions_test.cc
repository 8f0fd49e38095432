
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

// Performs `schedule` in issue order, and fails if an action needs a value that
// has not been sent.
void ExpectRuns(const Schedule& schedule) {
  SCOPED_TRACE(schedule.name);
  const Values values(schedule);
  std::vector<bool> there(values.count(), false);
  std::vector<size_t> done(schedule.actions.size(), 0);
  for (int rank : IssueOrder(schedule)) {
    const Action& action = schedule.actions[rank].at(done[rank]++);
    const size_t needed = values.NeededBy(action);
    if (needed != Values::kNone) {
      EXPECT_TRUE(there[needed]) << ToString(action);
    }
    if (IsSend(action.kind)) there[values.CarriedBy(action)] = true;
    const size_t made = values.MadeBy(action);
    if (made == Values::kNone) continue;
    if (schedule.rank_of_stage[values.UserOf(made)] == rank) there[made] = true;
  }
  for (size_t rank = 0; rank < done.size(); ++rank)
    EXPECT_EQ(done[rank], schedule.actions[rank].size()) << "rank " << rank;
}

TEST(IssueOrderTest, NothingIsIssuedBeforeWhatItNeeds) {
  for (const std::string& name : ScheduleNames()) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int m : {1, 2, 7}) {
        const absl::StatusOr<Schedule> made =
            MakeSchedule(name, {.num_ranks = ranks, .num_micro_batches = m});
        if (made.ok()) ExpectRuns(*AddCommunication(*made));
      }
    }
  }
  ExpectRuns(MakeForwardSchedule({0, 1, 2, 2, 1, 0}, 3, 5));
  // Here a rank computes twice before it sends.
  ExpectRuns(MakeForwardSchedule({0, 1, 0, 1}, 2, 5));
}

TEST(FirstMicroBatchesTest, WhatIsLeftOfAPairOverlapsNothing) {
  const Schedule pairs = *ParseScheduleCsv(
      "pairs.csv", "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,0B2\n");
  EXPECT_EQ(ToCsv(FirstMicroBatches(pairs, 2)),
            "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
}

// Rank 0 could issue all its forwards before rank 1's first.
TEST(IssueOrderTest, RanksTakeTurnsAsTheyWouldStart) {
  const Schedule schedule = *AddCommunication(
      *MakeSchedule("gpipe", {.num_ranks = 2, .num_micro_batches = 3}));
  std::string order;
  std::vector<size_t> done(2, 0);
  for (int rank : IssueOrder(schedule)) {
    const Action& action = schedule.actions[rank][done[rank]++];
    if (IsCompute(action.kind)) order += ToString(action) + " ";
  }
  EXPECT_EQ(order, "0F0 0F1 1F0 0F2 1F1 1F2 1B0 0B0 1B1 0B1 1B2 0B2 ");
}

TEST(IssueOrderTest, ACircleEndsTheOrderEarly) {
  Schedule schedule;
  schedule.num_micro_batches = 1;
  schedule.rank_of_stage = {0, 1};
  schedule.actions = {
      {{0, 0, ActionKind::kBackward}, {0, 0, ActionKind::kForward}},
      {{1, 0, ActionKind::kForward}, {1, 0, ActionKind::kBackward}}};
  EXPECT_TRUE(IssueOrder(schedule).empty());
}

using testing::ElementsAre;
using testing::IsEmpty;
constexpr auto kF = ActionKind::kForward;
constexpr auto kB = ActionKind::kBackward;
constexpr auto kSendF = ActionKind::kSendForward;
constexpr auto kRecvF = ActionKind::kRecvForward;
constexpr auto kSendB = ActionKind::kSendBackward;
constexpr auto kRecvB = ActionKind::kRecvBackward;

// 1F1B of two ranks and two micro-batches.
Schedule TwoRanks() {
  Schedule schedule;
  schedule.num_micro_batches = 2;
  schedule.rank_of_stage = {0, 1};
  schedule.actions = {{{0, 0, kF},
                       {0, 0, kSendF},
                       {0, 1, kF},
                       {0, 1, kSendF},
                       {0, 0, kRecvB},
                       {0, 0, kB},
                       {0, 1, kRecvB},
                       {0, 1, kB}},
                      {{1, 0, kRecvF},
                       {1, 1, kRecvF},
                       {1, 0, kF},
                       {1, 0, kB},
                       {1, 0, kSendB},
                       {1, 1, kF},
                       {1, 1, kB},
                       {1, 1, kSendB}}};
  return schedule;
}

std::vector<size_t> ArrivedOnceReceived(const Schedule& schedule,
                                        size_t received) {
  std::vector<size_t> arrived;
  SendReleases(schedule).VisitArrived(
      received, [&](size_t sent) { arrived.push_back(sent); });
  return arrived;
}

TEST(SendReleasesTest, AGradientShowsThatTheOutputsUsedBeforeItArrived) {
  const Schedule schedule = TwoRanks();
  const Values values(schedule);
  for (const int micro_batch : {0, 1}) {
    EXPECT_THAT(ArrivedOnceReceived(schedule,
                                    values.CarriedBy({1, micro_batch, kSendB})),
                ElementsAre(values.CarriedBy({0, micro_batch, kSendF})));
  }
}

TEST(SendReleasesTest, NothingComesAfterTheUseOfTheLastGradients) {
  const Schedule schedule = TwoRanks();
  const Values values(schedule);
  for (const int micro_batch : {0, 1}) {
    EXPECT_THAT(ArrivedOnceReceived(schedule,
                                    values.CarriedBy({0, micro_batch, kSendF})),
                IsEmpty());
  }
  EXPECT_THAT(ArrivedOnceReceived(schedule, Values::kNone), IsEmpty());
}

}  // namespace
}  // namespace rankwise
