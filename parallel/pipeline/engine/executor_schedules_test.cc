// Every schedule in every small shape gives the results of one process.
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/engine/test_pipeline.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

constexpr int kMaxMicroBatches = 9;

// Shared by the threads of all ranks.
const Reference& ReferenceOf(int stages, int micro_batches) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<std::pair<int, int>, Reference>;
  const std::lock_guard<std::mutex> lock(*mutex);
  auto [entry, is_new] = known->try_emplace({stages, micro_batches});
  if (is_new) {
    entry->second =
        ComputeReference(TestLayers::kLinear, stages, micro_batches);
  }
  return entry->second;
}

void ExpectSpansInOrder(const Schedule& schedule, int rank,
                        const ExecutorStep& step) {
  const std::vector<Action>& actions = schedule.actions[rank];
  ASSERT_EQ(step.spans.size(), actions.size());
  double last_start = step.start_seconds, last_compute = step.start_seconds;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Span& span = step.spans[i];
    EXPECT_TRUE(span.action == actions[i]);
    EXPECT_GE(span.start_seconds, last_start) << ToString(span.action);
    EXPECT_GE(span.end_seconds, span.start_seconds) << ToString(span.action);
    EXPECT_LE(span.end_seconds, step.end_seconds) << ToString(span.action);
    last_start = span.start_seconds;
    if (!IsCompute(span.action.kind)) continue;
    EXPECT_GE(span.start_seconds, last_compute) << ToString(span.action);
    last_compute = span.end_seconds;
  }
}

void ExpectLikeOneProcess(const Group& group, int rank,
                          const Schedule& schedule) {
  SCOPED_TRACE(testing::Message()
               << schedule.name << ", rank " << rank << " of "
               << schedule.num_ranks() << ", " << schedule.num_stages()
               << " stages, " << schedule.num_micro_batches
               << " micro-batches");
  const Reference& reference =
      ReferenceOf(schedule.num_stages(), schedule.num_micro_batches);
  const TestStages stages(TestLayers::kLinear, schedule, rank);
  std::vector<int> ready;
  ExecutorConfig config = ConfigFor(schedule);
  config.on_gradients_ready = [&](int stage) {
    ready.push_back(stage);
    EXPECT_TRUE(
        Same(stages.stages[stage]->Gradients(), reference.gradients[stage]));
  };
  PipelineExecutor executor(group, stages.pointers(), config);
  const ExecutorStep step = WaitFor(StepOf(executor, schedule));
  EXPECT_TRUE(at::equal(step.loss, reference.loss));
  std::sort(ready.begin(), ready.end());
  EXPECT_EQ(ready, schedule.StagesOf(rank));
  EXPECT_EQ(step.peak_activations, Validate(schedule)->peak_activations[rank]);
  ExpectSpansInOrder(schedule, rank, step);
}

class ExecutorSchedulesTest : public testing::TestWithParam<int> {};

TEST_P(ExecutorSchedulesTest, LossesAndGradientsAreThoseOfOneProcess) {
  const int num_ranks = GetParam();
  std::vector<Schedule> schedules;
  // Number of shapes by schedule, to verify that each is tested.
  std::map<std::string, int> shapes;
  for (const std::string& name : ScheduleNames()) {
    for (int chunks = 1; chunks <= 2; ++chunks) {
      for (int m = 1; m <= kMaxMicroBatches; ++m) {
        for (Schedule& schedule : TestSchedule(name, {num_ranks, m, chunks})) {
          schedules.push_back(std::move(schedule));
          ++shapes[name];
        }
      }
    }
  }
  EXPECT_EQ(shapes["1f1b"], kMaxMicroBatches);
  EXPECT_EQ(shapes["zero_bubble_h1"], kMaxMicroBatches);
  EXPECT_EQ(shapes["zero_bubble_h2"], kMaxMicroBatches);
  EXPECT_EQ(shapes["zero_bubble_auto"], kMaxMicroBatches);
  EXPECT_EQ(shapes["dualpipev"], kMaxMicroBatches + 1 - 2 * num_ranks);
  EXPECT_EQ(shapes["interleaved_1f1b"], 2 * kMaxMicroBatches);
  EXPECT_EQ(shapes.size(), ScheduleNames().size());
  OnProcesses(num_ranks, [&](const Group& group, int rank) {
    for (const Schedule& schedule : schedules) {
      ExpectLikeOneProcess(group, rank, schedule);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExecutorSchedulesTest, testing::Range(1, 5));

// As when a run has measured its costs: the plans change the order of work, but
// not the order in which gradients are summed.
TEST(ExecutorPlansTest, PlansForOtherCostsComputeTheSame) {
  constexpr int kRanks = 4, kMicroBatches = 8;
  const SimulationCosts measured = {
      .stages = {{0.5, 0.5, 2}, {1, 0.5, 0.5}, {1, 0.5, 2}, {1.5, 1.5, 0.5}},
      .link = {.alpha_seconds = 0.1}};
  std::vector<Schedule> plans;
  for (const SimulationCosts& costs : {SimulationCosts(), measured}) {
    plans.push_back(*AddCommunication(
        *MakeSchedule("zero_bubble_auto:6", {kRanks, kMicroBatches}, costs)));
  }
  EXPECT_NE(plans[0].actions, plans[1].actions);
  OnProcesses(kRanks, [&](const Group& group, int rank) {
    for (const Schedule& plan : plans) ExpectLikeOneProcess(group, rank, plan);
  });
}

}  // namespace
}  // namespace rankwise
