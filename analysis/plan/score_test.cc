// Scores records with known truth: steps of the planner's own model on a known
// device and network, with noise between runs.

#include "analysis/plan/score.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/plan/cluster.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/recorded_machine.h"
#include "analysis/plan/step.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/stats/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kTrials = 40;
constexpr int kRepetitions = 3;
constexpr double kNoise = 0.03;  // common to all steps of a run

// `speed` of computation while communication is in flight.
RunTrace BenchRun(double speed = 1) {
  BenchRunForTest bench;
  bench.collectives = {"all_reduce", "ping_pong"};
  RunTrace run = MakeBenchRun(bench);
  OverlapRecord overlap;
  overlap.compute_seconds = {0.02};
  overlap.comm_seconds = {0.01};
  overlap.both_seconds = {0.02 + (1 - speed) * 0.01};
  for (RankTrace& rank : run.ranks) rank.overlaps = {overlap};
  return run;
}

StepModel Truth(double peak_flops, int64_t ranks, double speed = 1) {
  Setting setting;
  setting.cluster.speed_during_communication = speed;
  setting.model = *NamedModel("nano");
  setting.engine = *OwnEngine("fp32");
  setting.cluster.device.peak_flops = peak_flops;
  setting.cluster.device.memory_bytes = 8e9;
  setting.cluster.devices_per_node = ranks;
  setting.cluster.network = *FitNetwork({BenchRun()});
  return *StepModel::Create(std::move(setting));
}

std::string BinaryOf(const Layout& layout) {
  if (!layout.is_data_parallel()) return "hybrid";
  if (layout.zero > 0) return "fsdp";
  return layout.dp > 1 ? "ddp" : "single";
}

// Returns a run with steps of `times` the truth.
RunTrace Recorded(const Layout& layout, double times, int repetition,
                  double speed = 1) {
  StepModel truth = Truth(50e9, layout.ranks(), speed);
  const Step step = *truth.PredictInDetail(layout);
  RunTrace run =
      MakeRun({.binary = BinaryOf(layout),
               .world_size = layout.ranks(),
               .run_id = absl::StrCat(layout.MeshName(), layout.Details(),
                                      repetition)});
  for (RankTrace& rank : run.ranks) {
    rank.run.forward_flops_per_example = truth.setting().model.ForwardFlops();
    rank.run.mesh = {{"pp", layout.pp}, {"dp", layout.dp}, {"tp", layout.tp}};
    rank.run.host.cores = 64;
    rank.run.backend = "gloo";
    rank.run.flags = {{"model", "gpt"},
                      {"precision", "fp32"},
                      {"model_size", "nano"},
                      {"tied_head", "true"},
                      {"microbatches", absl::StrCat(layout.micro_batches)},
                      {"batch_size", absl::StrCat(layout.micro_batch)},
                      {"schedule", layout.schedule},
                      {"zero", absl::StrCat(layout.zero)}};
    for (StepRecord& one : rank.steps) {
      one.step_seconds = times * step.step_seconds;
      one.exposed_comm_seconds = times * step.parts.dp;
      one.optimizer_seconds = 0;
      one.data_wait_seconds = 0;
      one.examples = layout.micro_batch * layout.micro_batches;
    }
  }
  return run;
}

std::vector<Layout> Fitted() {
  return {{.micro_batch = 2},
          {.micro_batch = 8},
          {.dp = 2, .micro_batch = 8},
          {.dp = 2, .zero = 1, .micro_batch = 8},
          {.dp = 2, .zero = 3, .micro_batch = 8},
          {.pp = 2, .micro_batch = 2, .micro_batches = 4},
          {.tp = 2, .micro_batch = 8}};
}

std::vector<Layout> HeldOut() {
  return {{.dp = 2, .tp = 2, .micro_batch = 16},
          {.pp = 4, .micro_batch = 4, .micro_batches = 4},
          {.dp = 4, .micro_batch = 8},
          {.dp = 4, .zero = 3, .micro_batch = 8},
          {.pp = 2, .dp = 4, .micro_batch = 4, .micro_batches = 4},
          {.dp = 8, .micro_batch = 8}};
}

// `bias`: ratio of held-out layouts' steps to the truth.
std::vector<RunTrace> MadeRecords(std::mt19937_64& random, double bias,
                                  double speed = 1) {
  std::normal_distribution<double> noise(0, kNoise);
  std::vector<RunTrace> runs = {BenchRun(speed)};
  const auto add = [&](const std::vector<Layout>& layouts, double times) {
    for (const Layout& layout : layouts) {
      for (int i = 0; i < kRepetitions; ++i) {
        runs.push_back(
            Recorded(layout, times * std::exp(noise(random)), i, speed));
      }
    }
  };
  add(Fitted(), 1);
  add(HeldOut(), 1 + bias);
  return runs;
}

struct Found {
  double median_error = 0, coverage = 0;
};

Found FoundIn(double bias, int64_t fit_up_to, double speed = 1) {
  std::mt19937_64 random(1);
  std::vector<double> errors;
  double covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto score =
        ScorePlans(MadeRecords(random, bias, speed), {fit_up_to});
    EXPECT_TRUE(score.ok()) << score.status();
    for (const ScoredPrediction& one : score->points) {
      errors.push_back(one.Error());
      covered += one.IsCovered();
    }
  }
  return {Median(errors), covered / static_cast<double>(errors.size())};
}

TEST(PlanScore, FindsTheTruthWithoutBiasAndCoversIt) {
  for (const int64_t fit_up_to : {0, 2}) {
    const Found found = FoundIn(0, fit_up_to);
    EXPECT_NEAR(found.median_error, 0, 0.01) << fit_up_to;
    EXPECT_GE(found.coverage, 0.90) << fit_up_to;
    EXPECT_LE(found.coverage, 0.99) << fit_up_to;
  }
}

TEST(PlanScore, FindsTheTruthWhereCoresComputeAndCommunicate) {
  for (const double speed : {0.0, 0.5}) {
    const Found found = FoundIn(0, 0, speed);
    EXPECT_NEAR(found.median_error, 0, 0.01) << speed;
    EXPECT_GE(found.coverage, 0.90) << speed;
    EXPECT_LE(found.coverage, 0.99) << speed;
  }
}

TEST(PlanScore, ShowsWhatTheModelLeavesOut) {
  const Found found = FoundIn(0.25, 2);
  EXPECT_NEAR(found.median_error, -0.2, 0.02);
  EXPECT_LT(found.coverage, 0.2);
}

TEST(PlanScore, PrintsErrorsAndRegret) {
  std::mt19937_64 random(2);
  std::vector<RunTrace> runs = MadeRecords(random, 0);
  const auto score = ScorePlans(runs, {.fit_up_to = 2});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_THAT(PlanScoreText(*score),
              AllOf(HasSubstr("dp 8, 1 x 8"), HasSubstr("Median error "),
                    HasSubstr(" of 6 layouts."), HasSubstr("Median regret ")));
  Score without_choices = *score;
  without_choices.regrets.clear();
  EXPECT_THAT(PlanScoreText(without_choices), Not(HasSubstr("regret")));
}

TEST(PlanScore, SaysWhatTheWrongChoiceCosts) {
  std::mt19937_64 random(3);
  std::vector<RunTrace> runs = {BenchRun(), Recorded({.micro_batch = 8}, 1, 0)};
  Layout first{.dp = 2, .micro_batch = 8}, second = first;
  second.zero = 3;
  StepModel truth = Truth(50e9, 2);
  if (truth.Quick(second)->step_seconds < truth.Quick(first)->step_seconds)
    std::swap(first, second);
  runs.push_back(Recorded(first, 3, 0));
  runs.push_back(Recorded(second, 1, 0));
  const auto score = ScorePlans(runs, {});
  ASSERT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(score->regrets.size(), 1u);
  EXPECT_EQ(score->regrets[0].choice.prediction.layout.zero, first.zero);
  EXPECT_EQ(score->regrets[0].best.prediction.layout.zero, second.zero);
  EXPECT_GT(score->median_regret, 1);
  // If only ZeRO 3 fits into memory, there is no other choice.
  double least = score->points[0].prediction.peak_bytes;
  for (const ScoredPrediction& one : score->points)
    least = std::min(least, one.prediction.peak_bytes);
  const auto tight = ScorePlans(runs, {.memory_bytes = 1.001 * least});
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_DOUBLE_EQ(tight->median_regret, 0);
}

TEST(PlanScore, FitsTheStepsThatItScores) {
  std::vector<RunTrace> runs = {Recorded({.micro_batch = 8}, 1, 0),
                                Recorded({.dp = 2, .micro_batch = 8}, 1, 0),
                                BenchRun()};
  for (RankTrace& rank : runs[0].ranks) {
    for (StepRecord& step : rank.steps) {
      if (step.step <= 15) step.step_seconds *= 10;
    }
  }
  const auto score = ScorePlans(runs, {.throughput = {.warmup_steps = 15}});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_NEAR(score->median_absolute_error, 0, 0.01);
  EXPECT_THAT(std::string(ScorePlans(runs, {.throughput = {.warmup_steps = 18}})
                              .status()
                              .message()),
              HasSubstr("20 steps leave 2 after 18 of warm-up"));
}

TEST(PlanScore, NormsKeepFp32CopiesOnGpusOnly) {
  const auto bytes = [](const char* device) {
    std::vector<RunTrace> runs = {
        Recorded({.micro_batch = 8}, 1, 0),
        Recorded({.dp = 2, .zero = 3, .micro_batch = 8}, 1, 0), BenchRun()};
    for (RunTrace& run : runs) {
      for (RankTrace& rank : run.ranks) {
        rank.run.devices = {device};
        rank.run.flags["precision"] = "bf16";
      }
    }
    const auto score = ScorePlans(runs, {});
    EXPECT_TRUE(score.ok()) << score.status();
    return score->points[0].prediction.peak_bytes;
  };
  const Model nano = *NamedModel("nano");
  // Two bytes more for each block's two norms and for the last norm.
  const double copies = 2 * static_cast<double>(8 * nano.sequence) *
                        static_cast<double>((2 * nano.blocks + 1) * nano.width);
  EXPECT_GT(bytes("cuda:0"), bytes("cpu") + 0.9 * copies);
}

TEST(PlanScore, SaysWhatCannotBeScored) {
  RunTrace run = Recorded({.micro_batch = 8}, 1, 0);
  EXPECT_THAT(std::string(ScorePlans({run, BenchRun()}, {}).status().message()),
              HasSubstr("no runs of several ranks"));
  RunRecord& record = run.ranks[0].run;
  record.forward_flops_per_example = 1;
  EXPECT_THAT(std::string(ModelOf(record).status().message()),
              HasSubstr("operations per example"));
  record.flags["accumulate"] = "1e18";
  EXPECT_THAT(std::string(LayoutOf(record, 8).status().message()),
              HasSubstr("1e+18 micro-batches a step are not planned"));
  record.flags["context"] = "ulysses";
  EXPECT_THAT(std::string(LayoutOf(record, 8).status().message()),
              HasSubstr("--context=ulysses is not planned"));
  record.flags["model"] = "mlp";
  EXPECT_THAT(std::string(ModelOf(record).status().message()),
              HasSubstr("--model=mlp is not planned"));
}

TEST(PlanScore, FitsEachPrecisionByItself) {
  std::vector<RunTrace> runs = {BenchRun()};
  for (const char* precision : {"fp32", "bf16"}) {
    for (const Layout& layout :
         {Layout{.micro_batch = 8}, Layout{.dp = 2, .micro_batch = 8}}) {
      // bf16 is twice as fast.
      runs.push_back(
          Recorded(layout, precision == std::string("bf16") ? 0.5 : 1, 0));
      for (RankTrace& rank : runs.back().ranks) {
        rank.run.run_id += precision;
        rank.run.scaling_hash = precision;
        rank.run.flags["precision"] = precision;
      }
    }
  }
  const auto score = ScorePlans(runs, {});
  ASSERT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(score->points.size(), 2u);
  EXPECT_TRUE(score->regrets.empty());
  for (const ScoredPrediction& one : score->points)
    EXPECT_NEAR(one.Error(), 0, 0.05);
}

TEST(PlanScore, NeedsTheNetworkOfItsBackend) {
  RunTrace run = Recorded({.dp = 2, .micro_batch = 8}, 1, 0);
  for (RankTrace& rank : run.ranks) rank.run.backend = "nccl";
  EXPECT_THAT(
      std::string(
          ScorePlans({BenchRun(), Recorded({.micro_batch = 8}, 1, 0), run}, {})
              .status()
              .message()),
      HasSubstr("its backend is nccl, and comm_bench measured gloo"));
}

TEST(PlanScore, PlansOnlyWhatItsLayoutsDo) {
  RunRecord run = Recorded({.dp = 2, .micro_batch = 8}, 1, 0).ranks[0].run;
  EXPECT_TRUE(LayoutOf(run, 16).ok());
  for (const char* binary :
       {"data_parallel", "parameter_server", "model_parallel"}) {
    RunRecord other = run;
    other.binary = binary;
    EXPECT_EQ(LayoutOf(other, 16).status().message(),
              absl::StrCat(binary, " is not planned"));
  }
  const std::tuple<const char*, const char*, const char*> flags[] = {
      {"last_bucket_mb", "0", "1"},
      {"comm_hook", "none", "bf16"},
      {"all_reduce", "flat", "hierarchical"},
      {"offload_optimizer", "false", "true"},
      {"reduce_every_microbatch", "false", "true"},
      {"local_steps", "1", "4"}};
  for (const auto& [name, planned, other] : flags) {
    run.flags[name] = planned;
    EXPECT_TRUE(LayoutOf(run, 16).ok()) << name;
    run.flags[name] = other;
    EXPECT_EQ(LayoutOf(run, 16).status().message(),
              absl::StrCat("--", name, "=", other, " is not planned"));
    run.flags.erase(name);
  }
}

}  // namespace
}  // namespace rankwise::plan
