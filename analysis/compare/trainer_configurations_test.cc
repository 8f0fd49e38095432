#include "analysis/compare/trainer_configurations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/trace_for_test.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

std::vector<Configuration> Measure(const std::vector<RunTrace>& runs) {
  std::vector<std::string> left_out;
  return TrainerConfigurations(runs, {10}, &left_out);
}

std::vector<double> ValuesOf(const Configuration& configuration,
                             const std::string& metric) {
  for (const MetricSample& sample : configuration.samples) {
    if (sample.metric == metric) return sample.values;
  }
  return {};
}

TEST(TrainerConfigurations, ARunIsARepetition) {
  std::vector<RunTrace> runs = {
      MakeRun({.world_size = 2, .step_seconds = 0.1}),
      MakeRun({.world_size = 2, .step_seconds = 0.2})};
  runs[1].ranks[0].memory = MemoryRecord{0, 5000, 0};
  runs[1].ranks[1].memory = MemoryRecord{1, 6000, 0};
  const std::vector<Configuration> found = Measure(runs);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "ddp on 2 ranks, batch 64");
  EXPECT_EQ(found[0].unit, "run");
  EXPECT_THAT(ValuesOf(found[0], "step_seconds"), ElementsAre(0.1, 0.2));
  EXPECT_EQ(ValuesOf(found[0], "examples_per_second").size(), 2u);
  const auto exposed = ValuesOf(found[0], "exposed_comm_seconds");
  ASSERT_EQ(exposed.size(), 2u);
  EXPECT_NEAR(exposed[0], 0.01, 1e-12);
  EXPECT_NEAR(exposed[1], 0.02, 1e-12);
  EXPECT_NEAR(ValuesOf(found[0], "data_wait_seconds")[1], 0.01, 1e-12);
  EXPECT_THAT(ValuesOf(found[0], "peak_bytes"), ElementsAre(6000));
}

TEST(TrainerConfigurations, PartsAreMeansOverStepsAndRanksAfterWarmUp) {
  RunTrace run = MakeRun({.world_size = 2});
  for (RankTrace& trace : run.ranks) {
    for (StepRecord& step : trace.steps) {
      step.exposed_comm_seconds = step.step <= 10 ? 99 : 0.001 * trace.run.rank;
    }
  }
  EXPECT_NEAR(ValuesOf(Measure({run})[0], "exposed_comm_seconds")[0], 0.0005,
              1e-12);
}

TEST(TrainerConfigurations, CapturedStepsOfSeveralRanksHaveNoExposedTime) {
  RunTrace run = MakeRun({.world_size = 2});
  for (RankTrace& trace : run.ranks) {
    for (StepRecord& step : trace.steps) step.captured_seconds = 0.08;
  }
  const std::vector<Configuration> found = Measure({run});
  EXPECT_EQ(ValuesOf(found[0], "exposed_comm_seconds").size(), 0u);
  EXPECT_EQ(ValuesOf(found[0], "step_seconds").size(), 1u);
}

TEST(TrainerConfigurations, FlagsOfOutputAndOfTheLauncherDoNotCount) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[0].run.flags["record"] = "a.jsonl";
  const std::vector<Configuration> found = Measure({run});
  EXPECT_THAT(found[0].flags, Not(Contains(Key("record"))));
  EXPECT_THAT(found[0].flags, Not(Contains(Key("nproc"))));
  EXPECT_THAT(found[0].flags, Contains(Pair("lr", "0.1")));
  EXPECT_THAT(found[0].flags, Contains(Pair("batch_size", "64")));
  EXPECT_THAT(found[0].identity, Contains(Pair("ranks", "2")));
}

TEST(TrainerConfigurations, NamesTellFlagsApart) {
  std::vector<RunTrace> runs = {MakeRun({}), MakeRun({})};
  RunRecord& run = runs[1].ranks[0].run;
  run.flags["lr"] = "0.2";
  SetConfigHashes(&run);
  const std::vector<Configuration> found = Measure(runs);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].name, found[1].name);
  EXPECT_THAT(found[0].name, HasSubstr("ddp on 1 rank, batch 64, --lr=0."));
}

}  // namespace
}  // namespace rankwise
