#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/engine/test_pipeline.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

using testing::HasSubstr;

// Returns the stages of all ranks.
std::vector<std::unique_ptr<TestStage>> AllStages(TestLayers layers,
                                                  const Schedule& schedule) {
  std::vector<std::unique_ptr<TestStage>> stages;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    stages.push_back(std::make_unique<TestStage>(
        layers, stage, schedule.num_stages(), schedule.num_micro_batches));
  }
  return stages;
}

std::vector<Stage*> Pointers(
    const std::vector<std::unique_ptr<TestStage>>& stages) {
  std::vector<Stage*> pointers;
  for (const auto& stage : stages) pointers.push_back(stage.get());
  return pointers;
}

ExecutorConfig Slots(const Schedule& schedule) {
  ExecutorConfig config;
  config.devices.assign(static_cast<size_t>(schedule.num_ranks()), at::kCPU);
  config.rank_of_stage = schedule.rank_of_stage;
  return config;
}

void ExpectLikeOneProcess(TestLayers layers, const Schedule& schedule,
                          ExecutorConfig config) {
  SCOPED_TRACE(testing::Message()
               << schedule.name << ", " << schedule.num_ranks() << " ranks, "
               << schedule.num_micro_batches << " micro-batches");
  const Reference reference = ComputeReference(layers, schedule.num_stages(),
                                               schedule.num_micro_batches);
  const auto stages = AllStages(layers, schedule);
  PipelineExecutor executor(Pointers(stages), config);
  executor.RunForward(schedule.num_micro_batches);
  EXPECT_TRUE(Same(stages.back()->outputs(), reference.shares));
  EXPECT_FALSE(stages.back()->saw_gradients());
  std::vector<ExecutorStep> steps = executor.Run(schedule);
  ASSERT_EQ(steps.size(), schedule.actions.size());
  for (size_t i = 0; i < stages.size(); ++i)
    EXPECT_TRUE(Same(stages[i]->Gradients(), reference.gradients[i])) << i;
  const std::vector<int> peaks = Validate(schedule)->peak_activations;
  double first_start = 0, last_end = 0;  // on CPUs nothing is concurrent
  double busy = 0;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    EXPECT_TRUE(at::equal(steps[rank].loss, reference.loss));
    EXPECT_EQ(steps[rank].peak_activations, peaks[rank]);
    const ExecutorStep step = WaitFor(std::move(steps[rank]));
    EXPECT_EQ(step.spans.size(), schedule.actions[rank].size());
    for (size_t i = 0; i < step.spans.size(); ++i) {
      EXPECT_TRUE(step.spans[i].action == schedule.actions[rank][i]);
      EXPECT_GE(step.spans[i].start_seconds, step.start_seconds);
      EXPECT_LE(step.spans[i].end_seconds, step.end_seconds);
    }
    const Extent extent = ExtentOf(step.spans);
    busy += extent.busy_seconds();
    if (rank == 0) first_start = step.start_seconds;
    last_end = std::max(last_end, step.end_seconds);
  }
  EXPECT_LE(busy, last_end - first_start + 1e-6);
}

TEST(LocalExecutorTest, EveryScheduleComputesWhatOneProcessDoes) {
  at::set_num_threads(1);
  for (const std::string& name : ScheduleNames()) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int m : {1, 2, 5, 9}) {
        for (const Schedule& schedule : TestSchedule(name, {ranks, m, 0}))
          ExpectLikeOneProcess(TestLayers::kLinear, schedule, Slots(schedule));
      }
    }
  }
}

TEST(LocalExecutorTest, DropoutConvolutionsAndRecomputation) {
  at::set_num_threads(1);
  for (const char* name : {"1f1b", "zbv"}) {
    const Schedule schedule = TestSchedule(name, {2, 4, 0}).at(0);
    for (bool recompute : {false, true}) {
      ExecutorConfig config = Slots(schedule);
      config.recompute = recompute;
      for (TestLayers layers : {TestLayers::kDropout, TestLayers::kConvolution})
        ExpectLikeOneProcess(layers, schedule, config);
    }
  }
}

TEST(LocalExecutorTest, AFilesScheduleIsFollowed) {
  const Schedule schedule = *AddCommunication(
      *ParseScheduleCsv("mixed.csv",
                        "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
                        "1F0,1F1,1I0,1F2,1W0,1I1,1W1,1F3,1I2,1W2,1I3,1W3\n"));
  ExpectLikeOneProcess(TestLayers::kLinear, schedule, Slots(schedule));
}

TEST(LocalExecutorTest, WhatCrossesIsCopiedAndCounted) {
  const Schedule schedule = TestSchedule("1f1b", {2, 3, 1}).at(0);
  const auto stages = AllStages(TestLayers::kLinear, schedule);
  PipelineExecutor executor(Pointers(stages), Slots(schedule));
  for (const ExecutorStep& step : executor.Run(schedule)) {
    EXPECT_EQ(step.sent_bytes, (3 + 3 + 2) * 6 * 4);
    EXPECT_EQ(step.received_bytes, step.sent_bytes);
    // Three sends and three receives.
    EXPECT_EQ(step.waits.size(), 6u);
  }
}

TEST(LocalExecutorTest, SkippedMessagesAreOneNumber) {
  const Schedule schedule = TestSchedule("1f1b", {2, 3, 1}).at(0);
  const auto stages = AllStages(TestLayers::kLinear, schedule);
  ExecutorConfig config = Slots(schedule);
  config.skip_communication = true;
  PipelineExecutor executor(Pointers(stages), config);
  for (const ExecutorStep& step : executor.Run(schedule)) {
    EXPECT_EQ(step.sent_bytes, 3 * 4);
    EXPECT_TRUE(step.loss.isfinite().item<bool>());
  }
}

TEST(LocalExecutorTest, AnotherScheduleThanTheModelsIsRefused) {
  const Schedule schedule = TestSchedule("1f1b", {2, 3, 1}).at(0);
  const auto stages = AllStages(TestLayers::kLinear, schedule);
  PipelineExecutor executor(Pointers(stages), Slots(schedule));
  EXPECT_THAT(
      [&] {
        executor.Run(TestSchedule("zbv", {1, 3, 2}).at(0));
      },
      testing::ThrowsMessage<c10::Error>(
          HasSubstr("is for 1 ranks; the pipeline has 2")));
}

}  // namespace
}  // namespace rankwise
