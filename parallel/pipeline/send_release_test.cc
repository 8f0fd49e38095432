#include "parallel/pipeline/send_release.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;
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

TEST(SendReleaseTest, AGradientVouchesForTheOutputsUsedBeforeIt) {
  const Schedule schedule = TwoRanks();
  const Values values(schedule);
  EXPECT_THAT(FindSendReleases(schedule, 0),
              UnorderedElementsAre(
                  Pair(values.CarriedBy({1, 0, kSendB}),
                       ElementsAre(values.CarriedBy({0, 0, kSendF}))),
                  Pair(values.CarriedBy({1, 1, kSendB}),
                       ElementsAre(values.CarriedBy({0, 1, kSendF})))));
}

TEST(SendReleaseTest, NothingComesAfterTheUseOfTheLastGradients) {
  EXPECT_TRUE(FindSendReleases(TwoRanks(), 1).empty());
}

}  // namespace
}  // namespace rankwise
