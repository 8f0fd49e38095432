#include "parallel/pipeline/issue_order.h"

#include <gtest/gtest.h>

#include <string>

#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/forward_schedule.h"
#include "parallel/pipeline/schedule.h"

namespace rankwise {
namespace {

// Performs `schedule` in the order, and fails where an action needs what has
// not been sent.
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
        ExpectRuns(*AddCommunication(
            *MakeSchedule(name, {.num_ranks = ranks, .num_micro_batches = m})));
      }
    }
  }
  ExpectRuns(MakeForwardSchedule({0, 1, 2, 2, 1, 0}, 3, 5));
  // Here a rank computes twice before it sends.
  ExpectRuns(MakeForwardSchedule({0, 1, 0, 1}, 2, 5));
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

}  // namespace
}  // namespace rankwise
