#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/prediction/recordings.h"
#include "analysis/prediction/runs_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Span At(int stage, ActionKind kind, double start, double end) {
  Span span;
  span.action.stage = stage;
  span.action.kind = kind;
  span.start_seconds = start;
  span.end_seconds = end;
  return span;
}

// Rank 0: F 0-1, B 4-6. Rank 1: F 1-2, B 2-4.
Timeline TwoRanks() {
  return {
      {{At(0, ActionKind::kForward, 0, 1), At(0, ActionKind::kBackward, 4, 6)},
       {At(1, ActionKind::kForward, 1, 2),
        At(1, ActionKind::kBackward, 2, 4)}}};
}

TEST(PipelineStep, IsTheSpanOfTheLongestRankAndWhatItDoesOutside) {
  const StepTimes times =
      PipelineStep(TwoRanks(), 1, {{}, {}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 6.5);
  EXPECT_DOUBLE_EQ(times.bubble_seconds, 3);
  EXPECT_EQ(times.exposed_comm_seconds, 0);
}

TEST(PipelineStep, ARankThatDoesMuchOutsideSetsThePace) {
  const StepTimes times =
      PipelineStep(TwoRanks(), 1, {{}, {}}, std::vector<double>{0.5, 7});
  EXPECT_DOUBLE_EQ(times.step_seconds, 10);  // 1 to 4, and 7
  EXPECT_DOUBLE_EQ(times.bubble_seconds, 0);
}

TEST(PipelineStep, WhatStretchingAddsIsBubble) {
  const StepTimes times =
      PipelineStep(TwoRanks(), 1.5, {{}, {}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 9.5);
  EXPECT_DOUBLE_EQ(times.bubble_seconds, 6);  // 9 - 3
}

TEST(PipelineStep, AShortenedTimelineHasNoNegativeBubble) {
  const StepTimes times =
      PipelineStep(TwoRanks(), 0.25, {{}, {}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 2);
  EXPECT_EQ(times.bubble_seconds, 0);
}

TEST(PipelineStep, GradientsOfTheLastStageAreExposed) {
  // Both ranks wait 2 s for their stage's average; rank 0 has the longest step.
  const StepTimes times =
      PipelineStep(TwoRanks(), 1, {{2}, {2}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 8.5);
  EXPECT_DOUBLE_EQ(times.exposed_comm_seconds, 2);
}

TEST(PipelineStep, EarlierStagesHideBehindLaterOnes) {
  // One rank, two stages: the gradients of stage 1 are ready at 3, those of
  // stage 0 at 5. 1 s from 3 is hidden; 1 s from 5 is exposed.
  const Timeline timeline = {
      {{At(0, ActionKind::kForward, 0, 1), At(1, ActionKind::kForward, 1, 2),
        At(1, ActionKind::kBackward, 2, 3), At(0, ActionKind::kInputGrad, 3, 4),
        At(0, ActionKind::kWeightGrad, 4, 5)}}};
  const std::vector<double> outside = {0};
  EXPECT_DOUBLE_EQ(
      PipelineStep(timeline, 1, {{1, 1}}, outside).exposed_comm_seconds, 1);
  // 4 s from 3 to 7, then 1 s.
  EXPECT_DOUBLE_EQ(
      PipelineStep(timeline, 1, {{4, 1}}, outside).exposed_comm_seconds, 3);
}

std::vector<RecordedPipeline> Recordings(const std::vector<RunTrace>& runs) {
  const auto usable = PredictableRuns(runs, {});
  EXPECT_TRUE(usable.ok()) << usable.status();
  return CollectPipelines(*usable, {});
}

std::vector<RecordedPipeline> Recorded(const PipelineRunForTest& config) {
  return Recordings({MakePipelineRun(config)});
}

Layout LayoutOf(const PipelineRunForTest& config) {
  return {.pp = config.pp,
          .dp = config.dp,
          .schedule = config.schedule,
          .chunks = config.chunks,
          .micro_batch = config.micro_batch,
          .micro_batches = config.micro_batches};
}

// Without costs of messages, the trainer's own measurement applies.
NetworkModel NoNetwork() { return NetworkModel(); }

double Seconds(const std::vector<RecordedPipeline>& recordings,
               const Layout& layout, const NetworkModel& network) {
  const auto simulated = SimulatePipelineLayout(recordings, layout, 0, network);
  EXPECT_TRUE(simulated.ok()) << simulated.status();
  return simulated.ok() ? simulated->runs[0][0].middle.step_seconds : 0;
}

std::string Refusal(const absl::StatusOr<SimulatedLayout>& simulated) {
  EXPECT_EQ(simulated.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(simulated.status().message());
}

TEST(CollectPipelines, FindsStageCostsAndMessages) {
  PipelineRunForTest config{.pp = 4};
  config.link = {0.001, 2e-9};
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  ASSERT_EQ(recordings.size(), 1u);
  const RecordedPipeline& recorded = recordings[0];
  EXPECT_EQ(recorded.steps.size(), 10u);  // after warm-up
  ASSERT_EQ(recorded.steps[0].stages.size(), 4u);
  EXPECT_NEAR(recorded.steps[0].stages[2].forward_seconds, 0.010, 1e-9);
  EXPECT_NEAR(recorded.steps[0].stages[2].backward_seconds, 0.020, 1e-9);
  for (int boundary = 0; boundary < 3; ++boundary) {
    EXPECT_NEAR(recorded.steps[0].stages[boundary].output_bytes, 1e6, 1);
  }
  EXPECT_NEAR(recorded.message_seconds, 0.003, 1e-9);
  EXPECT_NEAR(recorded.outside_seconds[1], 0.003, 1e-9);
  EXPECT_FALSE(recorded.cuts_backward);
}

TEST(CollectPipelines, CountsMessagesBetweenChunksOfOneRankOut) {
  PipelineRunForTest config{.pp = 2, .schedule = "zbv"};
  config.link = {0.001, 0};
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_NEAR(recordings[0].message_seconds, 0.001, 1e-9);
  EXPECT_NEAR(recordings[0].steps[0].stages[0].output_bytes, 1e6, 1);
}

TEST(CollectPipelines, NeedsTimelinesOfAllRanks) {
  RunTrace run = MakePipelineRun({});
  run.ranks[1].timelines.clear();
  EXPECT_TRUE(Recordings({run}).empty());
  EXPECT_TRUE(Recorded({.timeline_steps = 0}).empty());
}

TEST(SimulatePipelineLayout, RepeatsWhatWasRecorded) {
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved_1f1b", "zero_bubble_h1", "zbv"}) {
    PipelineRunForTest config{.pp = 4, .schedule = schedule};
    config.link = {0.001, 1e-9};
    EXPECT_NEAR(Seconds(Recorded(config), LayoutOf(config), NoNetwork()),
                PipelineStepSeconds(config), 1e-6)
        << schedule;
  }
}

TEST(SimulatePipelineLayout, EqualsTheSimulatorForOtherMicroBatches) {
  PipelineRunForTest config{.pp = 4};
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  for (int64_t micro_batches : {1, 2, 8, 32}) {
    config.micro_batches = micro_batches;
    EXPECT_NEAR(Seconds(recordings, LayoutOf(config), NoNetwork()),
                PipelineStepSeconds(config), 1e-6);
    // (m + p - 1) (F + B), and 3 ms outside the schedule.
    EXPECT_NEAR(PipelineStepSeconds(config),
                static_cast<double>(micro_batches + 3) * 0.030 + 0.003, 1e-9);
  }
}

TEST(SimulatePipelineLayout, EqualsTheSimulatorForOtherSchedules) {
  PipelineRunForTest config{.pp = 4, .schedule = "zero_bubble_h1"};
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  for (const char* schedule : {"gpipe", "1f1b"}) {
    config.schedule = schedule;
    EXPECT_NEAR(Seconds(recordings, LayoutOf(config), NoNetwork()),
                PipelineStepSeconds(config), 1e-6);
  }
}

TEST(SimulatePipelineLayout, TakesMessagesFromTheNetwork) {
  PipelineRunForTest config{.pp = 2};
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  config.link = {0.002, 3e-9};
  EXPECT_NEAR(Seconds(recordings, LayoutOf(config), FlatNetwork(0.002, 3e-9)),
              PipelineStepSeconds(config), 1e-6);
}

TEST(SimulatePipelineLayout, IsAsMuchSlowerThanItsSimulationAsTheRecordedStep) {
  PipelineRunForTest config{.pp = 2};
  RunTrace run = MakePipelineRun(config);
  for (RankTrace& rank : run.ranks) {
    for (ScheduleRecord& schedule : rank.schedules) {
      schedule.span_seconds *= 1.1;  // idle between actions
    }
  }
  config.micro_batches = 16;
  EXPECT_NEAR(Seconds(Recordings({run}), LayoutOf(config), NoNetwork()),
              (PipelineStepSeconds(config) - 0.003) * 1.1 + 0.003, 1e-6);
}

TEST(SimulatePipelineLayout, TimeThatTheSimulationLacksIsBubble) {
  PipelineRunForTest config{.pp = 2};
  RunTrace run = MakePipelineRun(config);
  for (RankTrace& rank : run.ranks) {
    for (ScheduleRecord& schedule : rank.schedules) schedule.span_seconds *= 2;
  }
  const auto simulated = SimulatePipelineLayout(
      Recordings({run}), LayoutOf(config), 0, NoNetwork());
  ASSERT_TRUE(simulated.ok()) << simulated.status();
  // Rank 0 computes four times 30 ms within (4 + 1) * 2 * 30 ms.
  EXPECT_NEAR(simulated->runs[0][0].middle.bubble_seconds, 0.180, 1e-6);
}

TEST(CollectPipelines, StepsWithoutATimelineFollowTheirSchedulesRecord) {
  PipelineRunForTest config{.pp = 2};
  RunTrace run = MakePipelineRun(config);
  // Step 15: rank 1's stage takes twice as long.
  run.ranks[1].schedules[14].busy_seconds *= 2;
  const std::vector<RecordedPipeline> recordings = Recordings({run});
  ASSERT_EQ(recordings[0].steps.size(), 10u);
  EXPECT_NEAR(recordings[0].steps[3].stages[1].forward_seconds, 0.010, 1e-9);
  EXPECT_NEAR(recordings[0].steps[4].stages[1].forward_seconds, 0.020, 1e-9);
  EXPECT_NEAR(recordings[0].steps[4].stages[1].backward_seconds, 0.040, 1e-9);
  EXPECT_NEAR(recordings[0].steps[4].stages[0].forward_seconds, 0.010, 1e-9);
}

TEST(CollectPipelines, LeavesStepsOfFewerMicroBatchesOut) {
  RunTrace run = MakePipelineRun({.pp = 2});
  for (RankTrace& rank : run.ranks) rank.schedules[15].micro_batches = 1;
  EXPECT_EQ(Recordings({run})[0].steps.size(), 9u);
}

// Records of a damaged or forged file.
TEST(CollectPipelines, PassesOverRanksThatDisagreeAboutThePipeline) {
  const std::vector<void (*)(RunTrace&)> damages = {
      [](RunTrace& run) { run.ranks[1].schedules[12].pipeline_rank = 7; },
      [](RunTrace& run) { run.ranks[1].schedules[12].pipeline_rank = -1; },
      [](RunTrace& run) { run.ranks[1].schedules.clear(); },
      [](RunTrace& run) {
        for (ScheduleRecord& s : run.ranks[1].schedules) s.pipeline_rank = 0;
      },
      [](RunTrace& run) {
        for (ScheduleRecord& s : run.ranks[1].schedules) s.pipeline_rank = 2;
      },
      [](RunTrace& run) {
        for (ScheduleRecord& s : run.ranks[1].schedules) s.stages = 4;
      },
      [](RunTrace& run) {
        for (RankTrace& rank : run.ranks) {
          for (ScheduleRecord& s : rank.schedules) s.stages = int64_t{1} << 60;
        }
      },
      [](RunTrace& run) {
        for (RankTrace& rank : run.ranks) {
          for (ScheduleRecord& s : rank.schedules) s.micro_batches = 0;
        }
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    RunTrace run = MakePipelineRun({.pp = 2});
    damages[i](run);
    const std::vector<const RunTrace*> runs = {&run};
    EXPECT_EQ(CollectPipelines(runs, {}).size(), 0u) << i;
  }
}

TEST(CollectPipelines, PassesOverSpansAndTransfersOfNobody) {
  PipelineRunForTest config{.pp = 2, .dp = 2};
  config.gradient_bytes = {4e6, 1e6};
  RunTrace run = MakePipelineRun(config);
  run.ranks[0].timelines[0].spans.push_back({"F", -1, 0, 0, 1});
  run.ranks[0].timelines[0].spans.push_back({"F", 9, 0, 0, 1});
  RecordedTransfer event = run.ranks[0].traffic[0].events[0];
  for (int64_t nobody : {-1, 4}) {
    event.ranks = {0, nobody};
    run.ranks[0].traffic[0].events.push_back(event);
  }
  const std::vector<RecordedPipeline> recordings = Recordings({run});
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_NEAR(recordings[0].steps[0].stages[0].forward_seconds, 0.010, 1e-9);
  EXPECT_EQ(recordings[0].gradient_bytes,
            (std::vector<std::vector<double>>{{4e6}, {1e6}}));
}

TEST(SimulatePipelineLayout, HybridsAverageWhatTheirTrafficShows) {
  PipelineRunForTest config{.pp = 2, .dp = 2};
  config.gradient_bytes = {4e6, 1e6};
  config.all_reduce_seconds = 0.004;
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_EQ(recordings[0].steps.size(), 20u);  // two replicas
  EXPECT_EQ(recordings[0].gradient_bytes,
            (std::vector<std::vector<double>>{{4e6}, {1e6}}));
  // Rank 0 leaves the schedule last: 4 MB at 1 ns/B are exposed.
  const auto simulated = SimulatePipelineLayout(recordings, LayoutOf(config), 0,
                                                FlatNetwork(0, 1e-9));
  ASSERT_TRUE(simulated.ok()) << simulated.status();
  EXPECT_NEAR(simulated->runs[0][0].middle.exposed_comm_seconds, 0.004, 1e-9);
  EXPECT_EQ(simulated->waiting, 2);
  EXPECT_TRUE(simulated->extrapolations.empty());
}

TEST(SimulatePipelineLayout, ReplicasWithoutTrafficSplitTheModelsGradients) {
  PipelineRunForTest config{.pp = 2};
  config.costs.output_bytes = 0;
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  config.dp = 4;
  config.all_reduce_seconds = 0.003;  // half of 6 MB at 1 ns
  const auto simulated = SimulatePipelineLayout(recordings, LayoutOf(config),
                                                6e6, FlatNetwork(0, 1e-9));
  ASSERT_TRUE(simulated.ok()) << simulated.status();
  EXPECT_NEAR(simulated->runs[0][0].middle.step_seconds,
              PipelineStepSeconds(config), 1e-6);
  EXPECT_THAT(simulated->extrapolations,
              Contains("each of 4 replicas is assumed to compute like the "
                       "recorded one: additional replicas have their own "
                       "cores"));
  EXPECT_THAT(simulated->assumptions, Contains(HasSubstr("optimizer's time")));
}

TEST(SimulatePipelineLayout, FewerReplicasNeedNoMoreCores) {
  PipelineRunForTest config{.pp = 2, .dp = 4};
  config.gradient_bytes = {4e6, 1e6};
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  for (const auto& [dp, text] : std::vector<std::pair<int64_t, std::string>>{
           {1,
            "the replica is assumed to compute like each of the 4 recorded "
            "ones: no faster, even if fewer share a host"},
           {2,
            "each of 2 replicas is assumed to compute like each of the 4 "
            "recorded ones: no faster, even if fewer share a host"}}) {
    config.dp = dp;
    const auto simulated = SimulatePipelineLayout(recordings, LayoutOf(config),
                                                  6e6, FlatNetwork(0, 1e-9));
    ASSERT_TRUE(simulated.ok()) << simulated.status();
    EXPECT_THAT(simulated->extrapolations, Contains(text));
  }
}

TEST(SimulatePipelineLayout, RefusesReplicasOfUnknownGradients) {
  const std::vector<RecordedPipeline> recordings = Recorded({.pp = 2});
  const Layout layout = LayoutOf({.pp = 2, .dp = 4});
  EXPECT_THAT(
      Refusal(SimulatePipelineLayout(recordings, layout, 0, FlatNetwork(0, 0))),
      HasSubstr("//trainers:ddp -- --nproc=2 --traffic_steps"));
}

TEST(SimulatePipelineLayout, RefusesStagesThatWereNotRecorded) {
  const std::vector<RecordedPipeline> recordings = Recorded({.pp = 2});
  for (const Layout& layout :
       {LayoutOf({.pp = 4}),
        LayoutOf({.pp = 2, .schedule = "interleaved_1f1b"}),
        LayoutOf({.pp = 2, .micro_batch = 8})}) {
    EXPECT_THAT(
        Refusal(SimulatePipelineLayout(recordings, layout, 0, NoNetwork())),
        testing::AllOf(HasSubstr("//trainers:pipeline"),
                       HasSubstr("--record=FILE"),
                       HasSubstr("--schedule=" + layout.schedule)));
  }
}

TEST(SimulatePipelineLayout, TakesTheChunksThatAreAskedFor) {
  const PipelineRunForTest four{
      .pp = 2, .schedule = "interleaved_1f1b", .chunks = 4};
  const std::vector<RecordedPipeline> recordings = Recorded(four);
  EXPECT_NEAR(Seconds(recordings, LayoutOf(four), NoNetwork()),
              PipelineStepSeconds(four), 1e-6);
  PipelineRunForTest eight = four;
  eight.chunks = 8;
  EXPECT_THAT(Refusal(SimulatePipelineLayout(recordings, LayoutOf(eight), 0,
                                             NoNetwork())),
              HasSubstr("--schedule=interleaved_1f1b --chunks=8 "));
}

TEST(SimulatePipelineLayout, RefusesAScheduleThatCutsAnUncutBackward) {
  const std::vector<RecordedPipeline> recordings = Recorded({.pp = 2});
  const Layout layout = LayoutOf({.pp = 2, .schedule = "zero_bubble_h1"});
  EXPECT_THAT(
      Refusal(SimulatePipelineLayout(recordings, layout, 0, NoNetwork())),
      HasSubstr("halves of its backward"));
}

TEST(SimulatePipelineLayout, MemoryFollowsTheActivationsKept) {
  PipelineRunForTest config{.pp = 2, .schedule = "1f1b", .micro_batches = 8};
  config.base_bytes = 1e8;
  config.bytes_per_activation = 1e7;
  PipelineRunForTest other = config;
  other.schedule = "gpipe";
  other.micro_batches = 4;
  const std::vector<RecordedPipeline> recordings =
      Recordings({MakePipelineRun(config), MakePipelineRun(other)});
  const auto peak = [&](const PipelineRunForTest& asked) {
    return SimulatePipelineLayout(recordings, LayoutOf(asked), 0, NoNetwork())
        ->peak_bytes;
  };
  EXPECT_NEAR(peak(config), 1.2e8, 1);
  other.micro_batches = 16;
  EXPECT_NEAR(peak(other), 2.6e8, 1);
}

TEST(SimulatePipelineLayout, MemoryOfMoreActivationsIsNotKnownFromOneRun) {
  PipelineRunForTest config{.pp = 2, .schedule = "1f1b", .micro_batches = 8};
  config.base_bytes = 1e8;
  config.bytes_per_activation = 1e7;
  const std::vector<RecordedPipeline> recordings = Recorded(config);
  config.schedule = "gpipe";
  EXPECT_EQ(SimulatePipelineLayout(recordings, LayoutOf(config), 0, NoNetwork())
                ->peak_bytes,
            0);
}

}  // namespace
}  // namespace rankwise
