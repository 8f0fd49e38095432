#include "parallel/pipeline/engine/executor.h"

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/engine/test_pipeline.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using testing::HasSubstr;

std::vector<Schedule> AllSchedules(int num_ranks, int micro_batches) {
  std::vector<Schedule> schedules;
  for (const std::string& name : ScheduleNames()) {
    for (Schedule& schedule :
         TestSchedule(name, {num_ranks, micro_batches, 0})) {
      schedules.push_back(std::move(schedule));
    }
  }
  return schedules;
}

// Compares two ranks with four micro-batches to one process.
void ExpectLikeOneProcess(TestLayers layers, bool recompute) {
  const std::vector<Schedule> schedules = AllSchedules(2, 4);
  ASSERT_EQ(schedules.size(), ScheduleNames().size());
  OnRanks(2, [&](const Group& group, int rank) {
    for (const Schedule& schedule : schedules) {
      const Reference reference =
          ComputeReference(layers, schedule.num_stages(), 4);
      const TestStages stages(layers, schedule, rank);
      ExecutorConfig config = ConfigFor(schedule);
      config.recompute = recompute;
      PipelineExecutor executor(group, stages.pointers(), config);
      const ExecutorStep step = StepOf(executor, schedule);
      EXPECT_TRUE(at::equal(step.loss, reference.loss)) << schedule.name;
      for (int stage : schedule.StagesOf(rank)) {
        EXPECT_TRUE(
            Same(stages.stages[stage]->Gradients(), reference.gradients[stage]))
            << schedule.name << ", stage " << stage;
        EXPECT_EQ(stages.stages[stage]->outputs().size(), recompute ? 8 : 4);
        EXPECT_EQ(stages.stages[stage]->Buffers()[0].item<int64_t>(), 4);
      }
    }
  });
}

TEST(ExecutorTest, RecomputationChangesNothing) {
  ExpectLikeOneProcess(TestLayers::kLinear, /*recompute=*/true);
}

TEST(ExecutorTest, DropoutMasksAreThoseOfTheMicroBatch) {
  ExpectLikeOneProcess(TestLayers::kDropout, /*recompute=*/false);
  ExpectLikeOneProcess(TestLayers::kDropout, /*recompute=*/true);
}

TEST(ExecutorTest, SixteenBits) {
  ExpectLikeOneProcess(TestLayers::kBf16, /*recompute=*/false);
  const Schedule schedule = TestSchedule("1f1b", {2, 3, 1}).at(0);
  OnRanks(2, [&](const Group& group, int rank) {
    const TestStages stages(TestLayers::kBf16, schedule, rank);
    PipelineExecutor executor(group, stages.pointers(), ConfigFor(schedule));
    const ExecutorStep step = WaitFor(StepOf(executor, schedule));
    EXPECT_EQ(step.sent_bytes, (3 + 3 + 2) * 6 * 2);
    EXPECT_EQ(step.received_bytes, step.sent_bytes);
  });
}

TEST(ExecutorTest, Convolutions) {
  ExpectLikeOneProcess(TestLayers::kConvolution, /*recompute=*/false);
}

TEST(ExecutorTest, GradientsAddUpOverStepsAndBytesAreCounted) {
  const Schedule schedule = TestSchedule("1f1b", {2, 3, 1}).at(0);
  const Reference reference = ComputeReference(TestLayers::kLinear, 2, 3);
  OnRanks(2, [&](const Group& group, int rank) {
    const TestStages stages(TestLayers::kLinear, schedule, rank);
    PipelineExecutor executor(group, stages.pointers(), ConfigFor(schedule));
    for (int step = 1; step <= 3; ++step) {
      const ExecutorStep result = WaitFor(StepOf(executor, schedule));
      EXPECT_EQ(result.sent_bytes, (3 + 3 + 2) * 6 * 4);
      EXPECT_EQ(result.received_bytes, result.sent_bytes);
      EXPECT_GE(result.wait_seconds(), 0);
      EXPECT_LE(result.wait_seconds(),
                result.end_seconds - result.start_seconds);
      EXPECT_TRUE(at::allclose(stages.stages[rank]->Gradients()[0],
                               reference.gradients[rank][0] * step));
    }
  });
}

TEST(ExecutorTest, WhatIsDoneWithReadyGradientsIsPartOfTheirAction) {
  const Schedule schedule = TestSchedule("1f1b", {1, 2, 1}).at(0);
  OnRanks(1, [&](const Group& group, int rank) {
    const TestStages stages(TestLayers::kLinear, schedule, rank);
    ExecutorConfig config = ConfigFor(schedule);
    config.on_gradients_ready = [](int) {
      absl::SleepFor(absl::Milliseconds(5));
    };
    PipelineExecutor executor(group, stages.pointers(), config);
    const ExecutorStep step = WaitFor(StepOf(executor, schedule));
    const Span& last = step.spans.back();
    EXPECT_GE(last.end_seconds - last.start_seconds, 0.005);
  });
}

TEST(ExecutorTest, BuffersOfSendsAreFreedWithinTheStep) {
  const Schedule schedule = TestSchedule("1f1b", {2, 9, 1}).at(0);
  OnRanks(2, [&](const Group& group, int rank) {
    const TestStages stages(TestLayers::kLinear, schedule, rank);
    PipelineExecutor executor(group, stages.pointers(), ConfigFor(schedule));
    const ExecutorStep step = WaitFor(StepOf(executor, schedule));
    int freed = 0;
    for (const Span& span : step.spans) {
      const bool is_send = IsSend(span.action.kind);
      freed += is_send && span.end_seconds <= step.spans.back().start_seconds;
    }
    EXPECT_GE(freed, 7);  // of 9
  });
}

// As in a mesh: ranks {1, 3} and {0, 2} of four form pipelines.
TEST(ExecutorTest, APipelineMayBePartOfTheJob) {
  const Schedule schedule = TestSchedule("zbv", {2, 4, 2}).at(0);
  const Reference reference = ComputeReference(TestLayers::kLinear, 4, 4);
  OnRanks(4, [&](const Group& world, int world_rank) {
    const int rank = world_rank / 2, first = world_rank % 2;
    const auto pipeline =
        world.communicator()->NewGroup("pp", {first, first + 2});
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    const TestStages stages(TestLayers::kLinear, schedule, rank);
    PipelineExecutor executor(*pipeline, stages.pointers(),
                              ConfigFor(schedule));
    executor.RunForward(4);
    EXPECT_TRUE(at::equal(executor.Run(schedule)[0].loss, reference.loss));
    for (int stage : schedule.StagesOf(rank)) {
      EXPECT_TRUE(
          Same(stages.stages[stage]->Gradients(), reference.gradients[stage]));
    }
  });
}

class ExecutorForwardTest : public testing::TestWithParam<const char*> {};

TEST_P(ExecutorForwardTest, EvaluationComputesEveryMicroBatchOnce) {
  for (int num_ranks = 1; num_ranks <= 3; ++num_ranks) {
    const Schedule schedule = TestSchedule(GetParam(), {num_ranks, 9, 0}).at(0);
    const int num_stages = schedule.num_stages();
    const Reference reference =
        ComputeReference(TestLayers::kLinear, num_stages, 9);
    OnRanks(num_ranks, [&](const Group& group, int rank) {
      const TestStages stages(TestLayers::kLinear, schedule, rank);
      PipelineExecutor executor(group, stages.pointers(), ConfigFor(schedule));
      executor.RunForward(9);
      for (int stage : schedule.StagesOf(rank)) {
        EXPECT_EQ(stages.stages[stage]->outputs().size(), 9);
        EXPECT_FALSE(stages.stages[stage]->Gradients()[0].defined());
        EXPECT_FALSE(stages.stages[stage]->saw_gradients());
      }
      if (stages.stages.back() != nullptr) {
        EXPECT_TRUE(Same(stages.stages.back()->outputs(), reference.shares));
      }
      // A step between evaluations, and fewer micro-batches.
      EXPECT_TRUE(at::equal(executor.Run(schedule)[0].loss, reference.loss));
      executor.RunForward(4);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, ExecutorForwardTest,
                         testing::Values("1f1b", "interleaved_1f1b", "zbv"));

// A rank whose stage throws disconnects on exit; the others must not wait.
TEST(ExecutorFaultTest, ARankThatDiesEndsTheOthers) {
  const Schedule schedule = TestSchedule("1f1b", {3, 6, 1}).at(0);
  const std::vector<std::string> errors =
      ErrorsOnRanks(3, absl::Seconds(60), [&](const Group& group, int rank) {
        const TestStages stages(TestLayers::kLinear, schedule, rank);
        if (rank == 1) stages.stages[1]->ThrowAt(2);
        PipelineExecutor executor(group, stages.pointers(),
                                  ConfigFor(schedule));
        executor.Run(schedule);
      });
  EXPECT_THAT(errors[1], HasSubstr("thrown by the test"));
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[2], "");
}

// Stays in the group until the other rank has given up.
void WaitInVain(const Group& group) {
  std::vector<at::Tensor> nothing = {at::zeros({1})};
  EXPECT_ANY_THROW(group.process_group()->recv(nothing, 0, 12345)->wait());
}

TEST(ExecutorFaultTest, ARankThatIsSilentEndsTheOthersAfterTheTimeout) {
  const Schedule schedule = TestSchedule("gpipe", {2, 2, 1}).at(0);
  const std::vector<std::string> errors = ErrorsOnRanks(
      2, absl::Milliseconds(300), [&](const Group& group, int rank) {
        const TestStages stages(TestLayers::kLinear, schedule, rank);
        PipelineExecutor executor(group, stages.pointers(),
                                  ConfigFor(schedule));
        if (rank == 1) {
          WaitInVain(group);
          return;
        }
        executor.Run(schedule);
      });
  EXPECT_NE(errors[0], "");
}

// Rank 0's outputs are never read: only a few of them may be in flight.
TEST(ExecutorFaultTest, EvaluationDoesNotRunFarAheadOfItsReader) {
  const Schedule schedule = TestSchedule("gpipe", {2, 9, 1}).at(0);
  const std::vector<std::string> errors = ErrorsOnRanks(
      2, absl::Milliseconds(300), [&](const Group& group, int rank) {
        const TestStages stages(TestLayers::kLinear, schedule, rank);
        PipelineExecutor executor(group, stages.pointers(),
                                  ConfigFor(schedule));
        executor.Run(schedule);
        if (rank == 1) {
          WaitInVain(group);
          return;
        }
        EXPECT_ANY_THROW(executor.RunForward(9));
        EXPECT_LE(stages.stages[0]->outputs().size(), 9 + 5);
      });
  EXPECT_EQ(errors[0], "");
}

TEST(ExecutorFaultTest, StagesThatDoNotFitTheScheduleAreRefused) {
  const Schedule one = TestSchedule("gpipe", {1, 2, 1}).at(0);
  const TestStages stages(TestLayers::kLinear, one, 0);
  const auto error_of =
      [&](const std::vector<Stage*>& pointers, const Schedule& schedule,
          const std::vector<int>& rank_of_stage) -> std::string {
    try {
      ExecutorConfig config;
      config.rank_of_stage = rank_of_stage;
      PipelineExecutor(Group(), pointers, config).Run(schedule);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  const Schedule two = TestSchedule("gpipe", {2, 2, 1}).at(0);
  const Schedule zbv = TestSchedule("zbv", {1, 2, 2}).at(0);
  Stage* const stage = stages.pointers()[0];
  EXPECT_EQ(error_of({stage}, one, {0}), "");
  EXPECT_THAT(error_of({stage}, two, {0}),
              HasSubstr("is for 2 ranks; the pipeline has 1"));
  EXPECT_THAT(error_of({stage, stage}, one, {0, 0}),
              HasSubstr("is for 1 stages; the model was cut into 2"));
  EXPECT_THAT(error_of({stage, nullptr}, zbv, {0, 1}),
              HasSubstr("runs stage 1 on rank 0; the model was cut so that "
                        "rank 1 holds it"));
  EXPECT_THAT(error_of({nullptr}, one, {0}),
              HasSubstr("stage 0 runs on rank 0; rank 0 does not hold it"));
  EXPECT_THAT(error_of({stage}, one, {}),
              HasSubstr("1 stages, but ranks for 0"));
}

// Returns another shape than it announced.
class WrongStage : public Stage {
 public:
  at::Tensor Forward(int, const at::Tensor&) override {
    return at::zeros({2, 3});
  }
  std::vector<int64_t> InputShape(int) const override { return {2, 3}; }
  std::vector<int64_t> OutputShape(int) const override { return {3, 2}; }
  std::vector<at::Tensor> Parameters() const override { return {}; }
};

TEST(ExecutorFaultTest, AStageThatReturnsTheWrongShapeIsNamed) {
  Schedule schedule;
  schedule.num_micro_batches = 1;
  schedule.rank_of_stage = {0, 0};
  schedule.actions = {{{0, 0, ActionKind::kForward}}};
  WrongStage first, last;
  PipelineExecutor executor(Group(), {&first, &last}, ConfigFor(schedule));
  EXPECT_THAT([&] { executor.Run(schedule); },
              testing::ThrowsMessage<c10::Error>(
                  HasSubstr("announced an output of shape [3, 2]")));
  schedule.actions = {{{1, 0, ActionKind::kForward}}};
  EXPECT_THAT([&] { executor.Run(schedule); },
              testing::ThrowsMessage<c10::Error>(HasSubstr("before it is")));
}

}  // namespace
}  // namespace rankwise
