#include "parallel/pipeline/simulation/simulate.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/strict_backend_for_test.h"

namespace rankwise {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns "0F0:0-1" for each span of a rank, in order.
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

// The pair is F for 1 s and B for 2 s: in order, half and fully overlapped.
TEST(SimulateTest, APairTakesAsLongAsItDoesNotOverlap) {
  const Schedule schedule =
      *ParseScheduleCsv("pair", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  const auto spans = [&](double overlap) {
    return Spans(
        *Simulate(schedule, {.stages = {StageCosts{}}, .overlap = overlap}), 0);
  };
  EXPECT_THAT(spans(0),
              ElementsAre("0F0:0-1", "0F1:1-2", "0B0:2-4", "0B1:4-6"));
  EXPECT_THAT(spans(0.5),
              ElementsAre("0F0:0-1", "0F1:1-2", "0B0:1.5-3.5", "0B1:3.5-5.5"));
  EXPECT_THAT(spans(1),
              ElementsAre("0F0:0-1", "0F1:1-2", "0B0:1-3", "0B1:3-5"));
}

// B is the shorter one; the next action waits for the end of both.
TEST(SimulateTest, TheLongerOfAPairCounts) {
  const Timeline timeline =
      *Simulate(*ParseScheduleCsv("pair", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"),
                {.stages = {StageCosts{.forward_seconds = 5}}, .overlap = 1});
  EXPECT_THAT(Spans(timeline, 0),
              ElementsAre("0F0:0-5", "0F1:5-10", "0B0:8-10", "0B1:10-12"));
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
  EXPECT_THAT(ErrorOf({.stages = {StageCosts{}}, .overlap = 1.5}),
              HasSubstr("an overlap of 1.5; it must be from 0 to 1"));
}

TEST(SimulateTest, FailsAsValidateDoes) {
  const Schedule circle =
      *ParseScheduleCsv("circle", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_THAT(Simulate(circle, OneForAll({})).status().message(),
              HasSubstr("deadlock"));
}

// Returns one string per rank.
std::vector<std::string> Lists(const Schedule& schedule) {
  std::vector<std::string> lists;
  for (const std::vector<Action>& actions : schedule.actions) {
    std::string list;
    for (const Action& action : actions) {
      if (!list.empty()) list += " ";
      list += ToString(action);
    }
    lists.push_back(list);
  }
  return lists;
}

Schedule Add(const std::string& name, const ScheduleShape& shape) {
  return AddCommunication(*MakeSchedule(name, shape)).value();
}

TEST(AddCommunicationTest, ReceivesAsEarlyAsTheOrderOfSendsAllows) {
  EXPECT_THAT(Lists(Add("1f1b", {2, 3})),
              ElementsAre("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 "
                          "0SEND_F2 0RECV_B1 0RECV_B2 0B1 0B2",
                          "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1RECV_F2 1F1 1B1 "
                          "1SEND_B1 1F2 1B2 1SEND_B2"));
}

TEST(AddCommunicationTest, StagesOnOneRankHandOverInMemory) {
  EXPECT_THAT(Lists(Add("zbv", {2, 1})),
              ElementsAre("0F0 0SEND_F0 3RECV_F0 3F0 3I0 3SEND_B0 0RECV_B0 "
                          "3W0 0I0 0W0",
                          "1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2I0 2W0 1I0 "
                          "1SEND_B0 1W0"));
}

TEST(AddCommunicationTest, OneRankNeedsNone) {
  EXPECT_FALSE(HasCommunication(Add("interleaved_1f1b", {1, 3, 2})));
}

TEST(AddCommunicationTest, IsValidAndKeepsTheComputationForEveryShape) {
  for (const std::string& name : ScheduleNames()) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 13; ++m) {
        SCOPED_TRACE(absl::StrCat(name, " p=", p, " m=", m));
        const absl::StatusOr<Schedule> made = MakeSchedule(name, {p, m});
        if (name == "dualpipev" && m < 2 * p) continue;
        ASSERT_TRUE(made.ok()) << made.status();
        const Schedule& compute = *made;
        const absl::StatusOr<Schedule> whole = AddCommunication(compute);
        ASSERT_TRUE(whole.ok()) << whole.status();
        const absl::StatusOr<ScheduleFacts> facts = Validate(*whole);
        ASSERT_TRUE(facts.ok()) << facts.status();
        EXPECT_EQ(ComputationOf(*whole).actions, compute.actions);
        EXPECT_EQ(facts->peak_activations, Validate(compute)->peak_activations);
        EXPECT_TRUE(RunsOnStrictBackend(*whole));
      }
    }
  }
}

// Returns a valid schedule of no known kind: stages on any ranks, actions in
// any runnable order.
Schedule RandomSchedule(std::mt19937* random) {
  const auto below = [&](int limit) {
    return static_cast<int>((*random)() % static_cast<unsigned>(limit));
  };
  Schedule schedule;
  const int ranks = 1 + below(4);
  const int stages = ranks + below(4);
  schedule.num_micro_batches = 1 + below(5);
  schedule.actions.resize(ranks);
  for (int stage = 0; stage < stages; ++stage) {
    schedule.rank_of_stage.push_back(stage < ranks ? stage : below(ranks));
  }
  std::shuffle(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(),
               *random);
  // Actions that can run next.
  std::vector<Action> ready;
  for (int i = 0; i < schedule.num_micro_batches; ++i) {
    ready.push_back({0, i, ActionKind::kForward});
  }
  while (!ready.empty()) {
    std::swap(ready[below(static_cast<int>(ready.size()))], ready.back());
    const Action action = ready.back();
    ready.pop_back();
    schedule.actions[schedule.rank_of_stage[action.stage]].push_back(action);
    const ActionKind backward =
        below(2) == 0 ? ActionKind::kBackward : ActionKind::kInputGrad;
    if (action.kind == ActionKind::kForward) {
      if (action.stage + 1 < stages)
        ready.push_back(
            {action.stage + 1, action.micro_batch, ActionKind::kForward});
      else
        ready.push_back({action.stage, action.micro_batch, backward});
      continue;
    }
    if (action.kind == ActionKind::kInputGrad)
      ready.push_back(
          {action.stage, action.micro_batch, ActionKind::kWeightGrad});
    if (action.kind != ActionKind::kWeightGrad && action.stage > 0)
      ready.push_back({action.stage - 1, action.micro_batch, backward});
  }
  return schedule;
}

TEST(AddCommunicationTest, RunsWhateverTheOrderOfComputation) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const absl::StatusOr<Schedule> whole =
        AddCommunication(RandomSchedule(&random));
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_TRUE(Validate(*whole).ok()) << Validate(*whole).status();
    EXPECT_TRUE(RunsOnStrictBackend(*whole))
        << absl::StrJoin(Lists(*whole), "\n");
  }
}

// Communication in a different order: a schedule that the validator accepts
// must run on a backend that matches messages by order.
TEST(AddCommunicationTest, WhatIsAcceptedRunsMessageByMessage) {
  std::mt19937 random(2);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    Schedule schedule = AddCommunication(RandomSchedule(&random)).value();
    for (int swaps = 0; swaps < 3; ++swaps) {
      auto& actions = schedule.actions[random() % schedule.actions.size()];
      const size_t at = random() % actions.size();
      if (at > 0) std::swap(actions[at - 1], actions[at]);
    }
    if (!Validate(schedule).ok()) {
      ++refused;
      continue;
    }
    ++accepted;
    EXPECT_TRUE(RunsOnStrictBackend(schedule))
        << absl::StrJoin(Lists(schedule), "\n");
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(AddCommunicationTest, ReplacesCommunicationThatIsThere) {
  const Schedule once = Add("gpipe", {3, 4});
  EXPECT_EQ(AddCommunication(once)->actions, once.actions);
}

TEST(AddCommunicationTest, FailsAsValidateDoes) {
  const Schedule circle =
      *ParseScheduleCsv("circle", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_THAT(AddCommunication(circle).status().message(),
              HasSubstr("deadlock"));
}

Span Compute(double start, double end) {
  return {{0, 0, ActionKind::kForward}, start, end};
}

TEST(MeasureBubblesTest, BothBubbles) {
  // Busy for 3 of its 4 seconds, and 2 of its 2, in a wall-clock time of 5.
  const Timeline timeline{
      {{Compute(10, 11), Compute(12, 14)}, {Compute(13, 15)}}};
  const Bubbles bubbles = MeasureBubbles(timeline);
  EXPECT_THAT(bubbles.span_per_rank, ElementsAre(DoubleEq(0.25), DoubleEq(0)));
  EXPECT_THAT(bubbles.wall_per_rank, ElementsAre(DoubleEq(0.4), DoubleEq(0.6)));
  EXPECT_DOUBLE_EQ(bubbles.span, 0.125);
  EXPECT_DOUBLE_EQ(bubbles.wall, 0.5);
  EXPECT_DOUBLE_EQ(bubbles.wall_seconds, 5);
  EXPECT_THAT(bubbles.busy_seconds, ElementsAre(3, 2));
}

TEST(MeasureBubblesTest, ActionsAtTheSameTimeAreOneTime) {
  // Two overlapping stages of a rank: busy from 10 to 15 and from 16 to 17.
  const Timeline timeline{
      {{Compute(10, 13), Compute(11, 12), Compute(12, 15), Compute(16, 17)}}};
  EXPECT_THAT(MeasureBubbles(timeline).busy_seconds, ElementsAre(6));
  EXPECT_DOUBLE_EQ(ExtentOf(timeline.ranks[0]).overlapped_seconds, 2);
}

TEST(MeasureBubblesTest, PassesOverCommunication) {
  const Timeline timeline{
      {{{{0, 0, ActionKind::kRecvForward}, 0, 10}, Compute(10, 11)}}};
  const Bubbles bubbles = MeasureBubbles(timeline);
  EXPECT_EQ(bubbles.span, 0);
  EXPECT_EQ(bubbles.wall, 0);
  EXPECT_EQ(bubbles.wall_seconds, 1);
}

TEST(MeasureBubblesTest, ARankWithoutComputationIdlesAllTheTime) {
  const Bubbles bubbles = MeasureBubbles(Timeline{{{Compute(0, 1)}, {}}});
  EXPECT_THAT(bubbles.span_per_rank, ElementsAre(0, 0));
  EXPECT_THAT(bubbles.wall_per_rank, ElementsAre(0, 1));
}

TEST(MeasureBubblesTest, ZeroWithoutComputation) {
  for (const Timeline& timeline : {Timeline{}, Timeline{{{}, {}}}}) {
    const Bubbles bubbles = MeasureBubbles(timeline);
    EXPECT_EQ(bubbles.span, 0);
    EXPECT_EQ(bubbles.wall, 0);
    EXPECT_EQ(bubbles.wall_seconds, 0);
  }
}

}  // namespace
}  // namespace rankwise
