// Scores of records whose truth is known: steps that the planner's own model
// takes on a known device and network, with noise from run to run.

#include "analysis/plan/score.h"

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/plan/cluster.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/stats/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kTrials = 40;
constexpr int kRepetitions = 3;
constexpr double kNoise = 0.03;  // of a run's steps, all alike

BenchRunForTest Bench() {
  BenchRunForTest bench;
  bench.collectives = {"all_reduce", "ping_pong"};
  return bench;
}

StepModel Truth(double peak_flops, int64_t ranks) {
  Setting setting;
  setting.model = *NamedModel("nano");
  setting.engine = *OwnEngine("fp32");
  setting.cluster.device.peak_flops = peak_flops;
  setting.cluster.device.memory_bytes = 8e9;
  setting.cluster.devices_per_node = ranks;
  setting.cluster.network = *FitNetwork({MakeBenchRun(Bench())});
  return *StepModel::Create(std::move(setting));
}

std::string BinaryOf(const Layout& layout) {
  if (!layout.is_data_parallel()) return "hybrid";
  if (layout.zero > 0) return "fsdp";
  return layout.dp > 1 ? "ddp" : "single";
}

// A run that took `times` as long as the truth says.
RunTrace Recorded(const Layout& layout, double times, int repetition) {
  StepModel truth = Truth(50e9, layout.ranks());
  const Step step = *truth.Predict(layout);
  RunTrace run =
      MakeRun({.binary = BinaryOf(layout),
               .world_size = layout.ranks(),
               .run_id = absl::StrCat(MeshName(layout), DetailsOf(layout),
                                      repetition)});
  for (RankTrace& rank : run.ranks) {
    rank.run.forward_flops_per_example = truth.setting().model.ForwardFlops();
    rank.run.mesh = {{"pp", layout.pp}, {"dp", layout.dp}, {"tp", layout.tp}};
    rank.run.host.cores = 64;
    rank.run.flags = {{"model", "gpt"},
                      {"precision", "fp32"},
                      {"tied_head", "true"},
                      {"batch_size", absl::StrCat(layout.micro_batch)},
                      {"schedule", layout.schedule},
                      {"zero", absl::StrCat(layout.zero)}};
    for (StepRecord& one : rank.steps) {
      one.step_seconds = times * step.seconds;
      one.exposed_comm_seconds = times * step.parts.dp;
      one.data_wait_seconds = 0;
      one.examples = layout.micro_batch * layout.micro_batches;
    }
  }
  return run;
}

std::vector<Layout> Fitted() {
  return {{.micro_batch = 8},
          {.dp = 2, .micro_batch = 8},
          {.dp = 2, .zero = 1, .micro_batch = 8},
          {.dp = 2, .zero = 3, .micro_batch = 8}};
}

std::vector<Layout> HeldOut() {
  return {{.tp = 2, .micro_batch = 16},
          {.pp = 2, .micro_batch = 4, .micro_batches = 4},
          {.dp = 4, .micro_batch = 8},
          {.dp = 4, .zero = 3, .micro_batch = 8},
          {.pp = 2, .dp = 4, .micro_batch = 4, .micro_batches = 4},
          {.dp = 8, .micro_batch = 8}};
}

// `bias`: how much longer than the truth the layouts that are held out take.
std::vector<RunTrace> MadeRecords(std::mt19937_64& random, double bias) {
  std::normal_distribution<double> noise(0, kNoise);
  std::vector<RunTrace> runs = {MakeBenchRun(Bench())};
  const auto add = [&](const std::vector<Layout>& layouts, double times) {
    for (const Layout& layout : layouts) {
      for (int i = 0; i < kRepetitions; ++i)
        runs.push_back(Recorded(layout, times * std::exp(noise(random)), i));
    }
  };
  add(Fitted(), 1);
  add(HeldOut(), 1 + bias);
  return runs;
}

struct Found {
  double median_error = 0, coverage = 0;
};

Found FoundIn(double bias) {
  std::mt19937_64 random(1);
  std::vector<double> errors;
  double covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto score = ScorePlans(MadeRecords(random, bias), 2);
    EXPECT_TRUE(score.ok()) << score.status();
    for (const ScoredLayout& point : score->points) {
      if (point.fitted) continue;
      errors.push_back(point.Error());
      covered += point.IsCovered();
    }
  }
  EXPECT_EQ(errors.size(), kTrials * HeldOut().size());
  return {Median(errors), covered / static_cast<double>(errors.size())};
}

TEST(PlanScore, FindsTheTruthWithoutBiasAndCoversIt) {
  const Found found = FoundIn(0);
  EXPECT_NEAR(found.median_error, 0, 0.01);
  EXPECT_GE(found.coverage, 0.90);
  EXPECT_LE(found.coverage, 0.99);
}

TEST(PlanScore, ShowsWhatTheModelLeavesOut) {
  const Found found = FoundIn(0.25);
  EXPECT_NEAR(found.median_error, -0.2, 0.02);
  EXPECT_LT(found.coverage, 0.2);
}

TEST(PlanScore, PrintsErrorsAndRegret) {
  std::mt19937_64 random(2);
  const auto score = ScorePlans(MadeRecords(random, 0), 2);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_THAT(PlanScoreText(*score),
              AllOf(HasSubstr("tp 2, 1 x 16"), HasSubstr("Median error "),
                    HasSubstr(" of 6 layouts; "), HasSubstr("Median regret ")));
}

TEST(PlanScore, SaysWhatCannotBeScored) {
  RunTrace run = Recorded({.micro_batch = 8}, 1, 0);
  EXPECT_THAT(
      std::string(
          ScorePlans({run, MakeBenchRun(Bench())}, 2).status().message()),
      HasSubstr("no layout beyond the runs"));
  run.ranks[0].run.forward_flops_per_example = 1;
  EXPECT_THAT(std::string(RecordedModel(run.ranks[0].run).status().message()),
              HasSubstr("FLOPs per example"));
  run.ranks[0].run.flags["model"] = "mlp";
  EXPECT_THAT(std::string(RecordedModel(run.ranks[0].run).status().message()),
              HasSubstr("only gpt"));
}

}  // namespace
}  // namespace rankwise::plan
