#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "parallel/pipeline/simulation/trace.h"

namespace rankwise {
namespace {

Timeline Simulated(const std::string& name, const ScheduleShape& shape) {
  return Simulate(*MakeSchedule(name, shape),
                  {.stages = {StageCosts{}}, .link = {}})
      .value();
}

TEST(DrawTimelineTest, NamesActionsWhereThereIsRoom) {
  EXPECT_EQ(DrawTimeline(Simulated("1f1b", {2, 2}), 100),
            "rank 0 |F0 F1 ......B0=== ...B1=== |\n"
            "rank 1 |...F0 B0=== F1 B1=== ......|\n"
            "F forward, B backward, of micro-batch 3: F3; . idle; a column is "
            "0.333 s\n");
}

TEST(DrawTimelineTest, NamesTheStageWhereARankHasSeveral) {
  EXPECT_EQ(DrawTimeline(Simulated("zbv", {1, 1}), 100),
            "rank 0 |0F0 1F0 1I0 1W0 0I0 0W0 |\n"
            "F forward, I input gradient, W weight gradient, of micro-batch 3 "
            "in stage 1: 1F3; . idle; a column is 0.25 s\n");
}

TEST(DrawTimelineTest, IsNarrowWhereThereIsLess) {
  EXPECT_EQ(DrawTimeline(Simulated("1f1b", {2, 2}), 20),
            "rank 0 |01..aa.bb|\n"
            "rank 1 |.0aa1bb..|\n"
            "0-9 forward, a-j backward, of micro-batch 0-9, 10-19, ...; . "
            "idle; a column is 1 s\n");
  EXPECT_EQ(
      DrawTimeline(Simulated("zero_bubble_h1", {1, 12}), 50).substr(0, 45),
      "rank 0 |0A=1B=2C=3D=4E=5F=6G=7H=8I=9J=0A=1B=|");
}

TEST(DrawTimelineTest, FitsEveryWidth) {
  const Timeline timeline = Simulated("interleaved_1f1b", {12, 24, 3});
  for (int width = 0; width < 400; ++width) {
    const std::string text = DrawTimeline(timeline, width);
    if (text.empty()) continue;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    for (int rank = 0; rank < 12; ++rank) {
      EXPECT_LE(lines[rank].size(), static_cast<size_t>(width));
      EXPECT_EQ(lines[rank].size(), lines[0].size());
    }
  }
}

TEST(DrawTimelineTest, IsEmptyWhereItIsTooLarge) {
  EXPECT_NE(DrawTimeline(Simulated("gpipe", {2, 10}), 29), "");
  EXPECT_EQ(DrawTimeline(Simulated("gpipe", {2, 10}), 28), "");
  EXPECT_EQ(DrawTimeline(Simulated("gpipe", {65, 2}), 300), "");
  EXPECT_EQ(DrawTimeline(Timeline{}, 100), "");
  EXPECT_EQ(DrawTimeline(Timeline{{{}, {}}}, 100), "");
}

TEST(DrawTimelineTest, PassesOverCommunicationAndStartsAtTheFirstComputation) {
  const Timeline timeline{{{{{0, 0, ActionKind::kRecvForward}, 50, 99},
                            {{0, 0, ActionKind::kForward}, 100, 101}}}};
  EXPECT_EQ(DrawTimeline(timeline, 100).substr(0, 13), "rank 0 |F0 |\n");
}

}  // namespace
}  // namespace rankwise
