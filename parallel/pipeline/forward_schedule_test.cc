#include "parallel/pipeline/forward_schedule.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using testing::ElementsAre;

std::vector<std::string> Text(const std::vector<Action>& actions) {
  std::vector<std::string> text;
  for (const Action& action : actions) text.push_back(ToString(action));
  return text;
}

TEST(ForwardScheduleTest, AChain) {
  const Schedule schedule = MakeForwardSchedule({0, 1}, 2, 2);
  EXPECT_THAT(Text(schedule.actions[0]),
              ElementsAre("0F0", "0SEND_F0", "0F1", "0SEND_F1"));
  EXPECT_THAT(Text(schedule.actions[1]),
              ElementsAre("1RECV_F0", "1F0", "1RECV_F1", "1F1"));
}

// The last stage is on rank 0 too: it starts the next micro-batch before the
// first has come back.
TEST(ForwardScheduleTest, AVShapeIsPipelined) {
  const Schedule schedule = MakeForwardSchedule({0, 1, 1, 0}, 2, 2);
  EXPECT_THAT(Text(schedule.actions[0]),
              ElementsAre("0F0", "0SEND_F0", "0F1", "3RECV_F0", "0SEND_F1",
                          "3F0", "3RECV_F1", "3F1"));
  EXPECT_THAT(Text(schedule.actions[1]),
              ElementsAre("1RECV_F0", "1F0", "2F0", "2SEND_F0", "1RECV_F1",
                          "1F1", "2F1", "2SEND_F1"));
}

// Runs the lists with sends that wait for their receive and the other way
// round, the strictest a backend can be. Returns the number of actions done.
size_t RunInLockstep(const Schedule& schedule) {
  const Values values(schedule);
  std::vector<size_t> next(schedule.actions.size());
  size_t done = 0;
  for (bool moved = true; moved;) {
    moved = false;
    std::map<size_t, int> met;  // value -> rank that stands at its message
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      const std::vector<Action>& actions = schedule.actions[rank];
      if (next[rank] == actions.size()) continue;
      const Action& action = actions[next[rank]];
      if (!IsCompute(action.kind)) {
        const auto [other, alone] = met.emplace(values.CarriedBy(action), rank);
        if (alone) continue;
        ++next[other->second];
        ++done;
      }
      ++next[rank];
      ++done;
      moved = true;
    }
  }
  return done;
}

TEST(ForwardScheduleTest, NoPlacementDeadlocks) {
  for (const auto& [rank_of_stage, num_ranks] :
       std::vector<std::pair<std::vector<int>, int>>{
           {{0}, 1},
           {{0, 1, 2, 3}, 4},
           {{0, 1, 2, 0, 1, 2}, 3},
           {{0, 1, 2, 2, 1, 0}, 3},
           {{0, 0, 1, 0, 2}, 3},
           {{2, 0, 1, 1, 2, 0, 2}, 3}}) {
    const Schedule schedule = MakeForwardSchedule(rank_of_stage, num_ranks, 7);
    size_t actions = 0;
    for (const auto& list : schedule.actions) actions += list.size();
    EXPECT_EQ(RunInLockstep(schedule), actions);
  }
}

}  // namespace
}  // namespace rankwise
