#include "analysis/prediction/recorded_runs.h"

#include "analysis/prediction/runs_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MirrorFakeRanks, MakesARunComplete) {
  const RunTrace alone = MakeDdpRun({.world_size = 32, .backend = "fake"});
  EXPECT_FALSE(CheckRun(alone).ok());
  const RunTrace run = MirrorFakeRanks(alone);
  EXPECT_TRUE(CheckRun(run).ok()) << CheckRun(run);
  ASSERT_EQ(run.ranks.size(), 32u);
  EXPECT_EQ(run.ranks[31].run.rank, 31);
  EXPECT_EQ(run.ranks[31].steps.back().rank, 31);
  EXPECT_EQ(run.ranks[31].steps.size(), run.ranks[0].steps.size());
}

TEST(MirrorFakeRanks, LeavesOtherRunsAlone) {
  RunTrace run = MakeDdpRun({.world_size = 4});
  run.ranks.resize(1);  // the others' records were lost
  EXPECT_EQ(MirrorFakeRanks(run).ranks.size(), 1u);
}

TEST(PredictableRuns, TakesTrainersThatCanBeMeasured) {
  RunTrace bench = MakeDdpRun({});
  bench.ranks[0].run.binary = "comm_bench";
  RunTrace torn = MakeDdpRun({.world_size = 2});
  torn.ranks.pop_back();
  const std::vector<RunTrace> runs = {bench, MakeDdpRun({}), torn,
                                      MakePipelineRun({}),
                                      MakeDdpRun({.steps = 12})};
  const auto usable = PredictableRuns(runs, {});
  ASSERT_TRUE(usable.ok()) << usable.status();
  ASSERT_EQ(usable->size(), 2u);
  EXPECT_EQ((*usable)[0], &runs[1]);
  EXPECT_EQ((*usable)[1], &runs[3]);
}

std::string Refusal(const std::vector<RunTrace>& runs) {
  const auto usable = PredictableRuns(runs, {});
  EXPECT_EQ(usable.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(usable.status().message());
}

TEST(PredictableRuns, RefusesToMixModels) {
  std::vector<RunTrace> runs = {MakeDdpRun({.run_id = "a"}),
                                MakeDdpRun({.run_id = "b"})};
  runs[1].ranks[0].run.flags["model"] = "resnet20";
  EXPECT_THAT(
      Refusal(runs),
      AllOf(HasSubstr("--model"), HasSubstr("simple_cnn"),
            HasSubstr("resnet20"), HasSubstr("a.jsonl"), HasSubstr("b.jsonl")));
}

TEST(PredictableRuns, RefusesToMixBuckets) {
  std::vector<RunTrace> runs = {MakeDdpRun({}), MakeDdpRun({})};
  runs[0].ranks[0].run.flags["bucket_cap_mb"] = "25";
  runs[1].ranks[0].run.flags["bucket_cap_mb"] = "1";
  EXPECT_THAT(Refusal(runs), HasSubstr("--bucket_cap_mb"));
}

TEST(PredictableRuns, RefusesToMixThreadsBackendsAndMachines) {
  std::vector<RunTrace> runs = {MakeDdpRun({}), MakeDdpRun({})};
  runs[1].ranks[0].run.threads_per_rank = 2;
  EXPECT_THAT(Refusal(runs), HasSubstr("threads per rank"));
  runs[1] = MakeDdpRun({});
  runs[1].ranks[0].run.backend = "nccl";
  EXPECT_THAT(Refusal(runs), HasSubstr("the backend"));
  runs[1] = MakeDdpRun({});
  runs[1].ranks[0].run.host.cpu_model = "B CPU";
  EXPECT_THAT(Refusal(runs), HasSubstr("the CPU"));
  runs[1] = MakeDdpRun({});
  runs[1].ranks[0].run.devices = {"cuda:0"};
  EXPECT_THAT(Refusal(runs), HasSubstr("the device"));
}

TEST(PredictableRuns, PassesOverCapturedSteps) {
  std::vector<RunTrace> runs = {MakeDdpRun({.run_id = "graph"}),
                                MakeDdpRun({})};
  for (StepRecord& step : runs[0].ranks[0].steps) step.captured_seconds = 0.1;
  const auto usable = PredictableRuns(runs, {});
  ASSERT_TRUE(usable.ok()) << usable.status();
  ASSERT_EQ(usable->size(), 1u);
  EXPECT_EQ((*usable)[0], &runs[1]);
  runs.pop_back();
  EXPECT_THAT(Refusal(runs),
              AllOf(HasSubstr("graph.jsonl"), HasSubstr("--cuda_graph=false")));
}

TEST(ExamplesPerStep, LeavesTheWarmUpOut) {
  RunTrace run = MakeDdpRun({.batch = 64, .steps = 20});
  for (int i = 0; i < 12; ++i) run.ranks[0].steps[i].examples = 1;
  EXPECT_EQ(ExamplesPerStep(run, {.warmup_steps = 12}), 64);
}

}  // namespace
}  // namespace rankwise
