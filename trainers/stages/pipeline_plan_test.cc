#include "trainers/stages/pipeline_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec SimpleCnn() { return *MakeModelSpec({.name = "simple_cnn"}); }

std::vector<size_t> Begins(const std::vector<LayerRange>& ranges) {
  std::vector<size_t> begins;
  for (const LayerRange& range : ranges) begins.push_back(range.begin);
  return begins;
}

std::string Refusal(const std::string& split, int stages) {
  return std::string(SplitModel(SimpleCnn(), split, stages).status().message());
}

TEST(PipelinePlanTest, EachMeasureBalancesItsOwn) {
  // conv1, conv2, fc1, fc2: most parameters are in fc1, most FLOPs in conv2.
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "layers", 2)),
            (std::vector<size_t>{0, 2}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "parameters", 3)),
            (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "flops", 3)),
            (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "1,3", 3)),
            (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "time", 2, {1, 1, 1, 3})),
            (std::vector<size_t>{0, 3}));
}

TEST(PipelinePlanTest, StagesCoverTheModelOnce) {
  for (int stages = 1; stages <= 4; ++stages) {
    const std::vector<LayerRange> ranges =
        *SplitModel(SimpleCnn(), "flops", stages);
    ASSERT_EQ(ranges.size(), static_cast<size_t>(stages));
    size_t next = 0;
    for (const LayerRange& range : ranges) {
      EXPECT_EQ(range.begin, next);
      EXPECT_LT(range.begin, range.end);
      next = range.end;
    }
    EXPECT_EQ(next, 4u);
  }
}

TEST(PipelinePlanTest, RefusalsNameTheFlag) {
  EXPECT_THAT(Refusal("flops", 5),
              HasSubstr("--split=flops: 5 stages of a model with 4 layers"));
  EXPECT_THAT(Refusal("1,9", 3), HasSubstr("--split=1,9: the cut 9"));
  EXPECT_THAT(Refusal("2", 3), HasSubstr("--split=2: '2' makes 2 stages"));
  EXPECT_THAT(Refusal("evenly", 2),
              HasSubstr("--split=evenly: must be layers, parameters, flops"));
}

// pp changes slowest, so a stage's replicas are neighbours.
TEST(PipelinePlanTest, ReplicasOfAStageTakeConsecutiveRanks) {
  const MeshLayout layout = *LayOutRanks(PipelineAxes({.replicas = 2}, 6), 6);
  EXPECT_EQ(layout.size("pp"), 3);
  EXPECT_EQ(layout.Line("pp", 4), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(layout.Line("dp", 4), (std::vector<int>{4, 5}));
  EXPECT_THAT(
      std::string(
          LayOutRanks(PipelineAxes({.replicas = 2}, 5), 5).status().message()),
      HasSubstr("--pp=2 --dp=2 are 4 ranks, but the job has 5"));
}

// mp_mlp: fc1, with 2048 features, and a ReLU; fc2, with 1024, and squared
// errors. One process holds fc1's output, its copy, its gradient's buffer, the
// ReLU's output, and two values per output for the squared errors.
TEST(PipelinePlanTest, ComputedActivationsHaveTheMessagesOfAllRanksHere) {
  TrainConfig config;
  config.model = {.name = "mp_mlp"};
  config.data.batch_size = 64;
  Worker worker;
  worker.devices.assign(2, c10::kCPU);
  const auto plan = *PipelinePlan::Create(
      config, worker, {.schedule = "naive", .micro_batches = 1, .split = "1"});
  EXPECT_EQ(plan->Placement().activation_bytes, 64 * 4 * (4 * 2048 + 2 * 1024));
}

double WallSeconds(const Schedule& schedule, const SimulationCosts& costs) {
  return MeasureBubbles(*Simulate(schedule, costs)).wall_seconds;
}

// The first plan assumes F = I = W; the measured times are far from equal.
TEST(PipelinePlanTest, PlansAgainForWhatWasMeasured) {
  constexpr size_t kMicroBatches = 12;
  TrainConfig config;
  config.model = {.name = "simple_cnn"};
  Worker worker;
  worker.devices.assign(4, c10::kCPU);
  const auto plan = *PipelinePlan::Create(config, worker,
                                          {.schedule = "zero_bubble_auto",
                                           .micro_batches = kMicroBatches,
                                           .split = "layers"});
  EXPECT_TRUE(plan->is_planned());
  EXPECT_TRUE(plan->PlannedSeconds(0).empty());
  const SimulationCosts costs = {
      .stages = {{0.5, 0.5, 2, 0, 1},
                 {1, 0.5, 0.5, 0, 1},
                 {1, 0.5, 2, 0, 1},
                 {1.5, 1.5, 0.5, 0, 1}},
      .link = {.alpha_seconds = 0.05, .beta_seconds_per_byte = 0.05}};
  const Schedule* const replaced = *plan->ScheduleFor(kMicroBatches);
  const Schedule before = *replaced;

  const std::string line = *plan->Replan(3, costs);
  EXPECT_THAT(line,
              HasSubstr("zero_bubble_auto: planned again after step 3 from "
                        "measured times (F 1000.00, I 750.00, W 1250.00 ms, "
                        "messages 100.00 ms): predicted bubble "));
  EXPECT_THAT(line, HasSubstr(" % -> "));
  const Schedule after = **plan->ScheduleFor(kMicroBatches);
  EXPECT_NE(*plan->ScheduleFor(kMicroBatches), replaced);
  EXPECT_EQ(replaced->actions, before.actions);
  EXPECT_LT(WallSeconds(after, costs), 0.97 * WallSeconds(before, costs));
  EXPECT_EQ(plan->PlannedSeconds(2),
            (std::map<std::string, double>{
                {"F", 1}, {"I", 0.5}, {"W", 2}, {"message", 0.1}}));
  EXPECT_EQ(plan->PlannedSeconds(3).count("message"), 0u);
  // A short step is the first part of the new order.
  EXPECT_EQ(ComputationOf(**plan->ScheduleFor(5)).actions,
            FirstMicroBatches(ComputationOf(after), 5).actions);

  EXPECT_THAT(*plan->Replan(6, costs), HasSubstr("no other plan is faster"));
  EXPECT_EQ((*plan->ScheduleFor(kMicroBatches))->actions, after.actions);
}

TEST(StageTableTest, SumsTheLayersOfEachStage) {
  const ModelSpec spec = *MakeModelSpec({.name = "simple_cnn"});
  const std::vector<LayerRange> stages = {{0, 2}, {2, 4}};
  EXPECT_EQ(StageTable(spec, stages, 8),
            "stage  layers                   parameters   output_bytes "
            "forward_flops\n"
            "    0  conv1 .. conv2                19392         131072     "
            "8.965e+07\n"
            "    1  fc1 .. fc2                  2102794            320     "
            "3.364e+07");
  EXPECT_THAT(StageTable(spec, stages, 8), Not(HasSubstr("backward_ms")));
}

TEST(StageTableTest, AddsMeasuredTimes) {
  const ModelSpec spec = *MakeModelSpec({.name = "mp_mlp"});
  const std::vector<LayerProfile> profile = {
      {0.001, 0.002}, {0.0005, 0.0001}, {0.004, 0.005}};
  const std::string table = StageTable(spec, {{0, 2}, {2, 3}}, 1, profile);
  EXPECT_THAT(table, HasSubstr(" 1.500       2.100\n"));
  EXPECT_THAT(table, HasSubstr(" 4.000       5.000"));
  EXPECT_THAT(table, HasSubstr("fc1 .. relu"));
}

}  // namespace
}  // namespace rankwise
