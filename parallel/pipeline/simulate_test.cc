#include "parallel/pipeline/simulate.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/schedule_csv.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "0F0:0-1" for each span of a rank, in order.
std::vector<std::string> Spans(const Timeline& timeline, int rank) {
  std::vector<std::string> spans;
  for (const Span& span : timeline.ranks[rank]) {
    spans.push_back(absl::StrCat(ToString(span.action), ":", span.start_seconds,
                                 "-", span.end_seconds));
  }
  return spans;
}

SimulationCosts OneForAll(const StageCosts& stage, const LinkCosts& link = {}) {
  return {.stages = {stage}, .link = link};
}

std::string ErrorOf(const SimulationCosts& costs) {
  const absl::StatusOr<Timeline> timeline =
      Simulate(*MakeSchedule("1f1b", {2, 2}), costs);
  EXPECT_TRUE(absl::IsInvalidArgument(timeline.status()));
  return std::string(timeline.status().message());
}

TEST(SimulateTest, OneForwardOneBackward) {
  const Timeline timeline =
      *Simulate(*MakeSchedule("1f1b", {2, 2}), OneForAll({}));
  EXPECT_THAT(Spans(timeline, 0),
              ElementsAre("0F0:0-1", "0F1:1-2", "0B0:4-6", "0B1:7-9"));
  EXPECT_THAT(Spans(timeline, 1),
              ElementsAre("1F0:1-2", "1B0:2-4", "1F1:4-5", "1B1:5-7"));
}

TEST(SimulateTest, EachStageHasItsCosts) {
  StageCosts slow;
  slow.forward_seconds = 3;
  slow.input_grad_seconds = 4;
  slow.weight_grad_seconds = 5;
  const Timeline timeline =
      *Simulate(*MakeSchedule("zero_bubble_h1", {2, 1}),
                {.stages = {StageCosts{}, slow}, .link = {}});
  EXPECT_THAT(Spans(timeline, 0),
              ElementsAre("0F0:0-1", "0I0:8-9", "0W0:9-10"));
  EXPECT_THAT(Spans(timeline, 1),
              ElementsAre("1F0:1-4", "1I0:4-8", "1W0:8-13"));
}

// Messages take 1 + 10 * 0.2 = 3 seconds; the second waits for the first.
TEST(SimulateTest, MessagesTakeTimeAndFollowEachOther) {
  StageCosts stage;
  stage.output_bytes = 10;
  const Timeline timeline = *Simulate(
      *MakeSchedule("gpipe", {2, 2}),
      OneForAll(stage, {.alpha_seconds = 1, .beta_seconds_per_byte = 0.2}));
  EXPECT_THAT(Spans(timeline, 0),
              ElementsAre("0F0:0-1", "0SEND_F0:1-4", "0F1:1-2", "0SEND_F1:4-7",
                          "0B0:13-15", "0B1:16-18"));
  EXPECT_THAT(Spans(timeline, 1),
              ElementsAre("1F0:4-5", "1F1:7-8", "1B0:8-10", "1SEND_B0:10-13",
                          "1B1:10-12", "1SEND_B1:13-16"));
}

TEST(SimulateTest, AGradientIsAsLargeAsTheOutputItBelongsTo) {
  StageCosts large;
  large.output_bytes = 5;
  const Timeline timeline =
      *Simulate(*MakeSchedule("1f1b", {2, 1}),
                {.stages = {large, StageCosts{}},
                 .link = {.alpha_seconds = 0, .beta_seconds_per_byte = 1}});
  EXPECT_THAT(Spans(timeline, 1),
              ElementsAre("1F0:6-7", "1B0:7-9", "1SEND_B0:9-14"));
}

TEST(SimulateTest, StagesOnOneRankHandOverAtNoCost) {
  StageCosts stage;
  stage.output_bytes = 10;
  const Timeline timeline = *Simulate(
      *MakeSchedule("interleaved_1f1b", {1, 1}),
      OneForAll(stage, {.alpha_seconds = 1, .beta_seconds_per_byte = 1}));
  EXPECT_THAT(Spans(timeline, 0),
              ElementsAre("0F0:0-1", "1F0:1-2", "1B0:2-4", "0B0:4-6"));
}

TEST(SimulateTest, CommunicationActionsAreIgnored) {
  const Schedule compute = *MakeSchedule("zbv", {3, 5});
  const Timeline without = *Simulate(compute, OneForAll({}));
  const Timeline with = *Simulate(*AddCommunication(compute), OneForAll({}));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Spans(with, rank), Spans(without, rank));
  }
}

TEST(SimulateTest, RefusesCostsThatDoNotFit) {
  EXPECT_THAT(ErrorOf({.stages = {}, .link = {}}),
              HasSubstr("costs of 0 stages for 2 stages"));
  EXPECT_THAT(ErrorOf({.stages = std::vector<StageCosts>(3), .link = {}}),
              HasSubstr("costs of 3 stages for 2 stages"));
  StageCosts negative;
  negative.weight_grad_seconds = -1;
  EXPECT_THAT(ErrorOf({.stages = {StageCosts{}, negative}, .link = {}}),
              HasSubstr("a cost of stage 1 is -1"));
  EXPECT_THAT(
      ErrorOf(OneForAll(
          {}, {.alpha_seconds = std::numeric_limits<double>::quiet_NaN()})),
      HasSubstr("link costs of nan"));
}

TEST(SimulateTest, FailsAsValidateDoes) {
  const Schedule circle =
      *ParseScheduleCsv("circle", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_THAT(Simulate(circle, OneForAll({})).status().message(),
              HasSubstr("deadlock"));
}

}  // namespace
}  // namespace rankwise
