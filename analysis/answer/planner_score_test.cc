// An answer's score of the planner, from the records of a study.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/answer/answer.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/plan/model.h"
#include "analysis/plan/score.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

RunTrace GptRun(const std::string& binary, int64_t ranks, double seconds,
                const std::map<std::string, std::string>& flags = {}) {
  RunTrace run = MakeRun({.binary = binary,
                          .world_size = ranks,
                          .batch_size = 8 / ranks,
                          .step_seconds = seconds,
                          .run_id = absl::StrCat(binary, ranks)});
  const double flops = plan::NamedModel("nano")->ForwardFlops();
  for (RankTrace& rank : run.ranks) {
    rank.run.forward_flops_per_example = flops;
    rank.run.mesh = {{"dp", ranks}};
    rank.run.host.cores = 64;
    rank.run.backend = "gloo";
    rank.run.flags["model"] = "gpt";
    rank.run.flags["model_size"] = "nano";
    rank.run.flags["precision"] = "fp32";
    for (const auto& [name, value] : flags) rank.run.flags[name] = value;
  }
  return run;
}

// Runs of single, ddp (nearly twice as fast), fsdp and comm_bench.
std::vector<RunTrace> Study(double fsdp_seconds) {
  BenchRunForTest bench;
  bench.collectives = {"all_reduce", "ping_pong"};
  return {GptRun("single", 1, 0.1), GptRun("ddp", 2, 0.055),
          GptRun("fsdp", 2, fsdp_seconds, {{"zero", "3"}}),
          MakeBenchRun(bench)};
}

TEST(PlannerScore, IsInTheAnswerAndItsText) {
  const auto answer = Analyze(Study(0.08), {});
  ASSERT_TRUE(answer->plan_score.has_value()) << AnswerText(*answer);
  const Score& score = *answer->plan_score;
  ASSERT_EQ(score.points.size(), 2u);
  EXPECT_DOUBLE_EQ(score.points[0].measured_seconds, 0.055);
  EXPECT_EQ(score.points[1].prediction.layout.zero, 3);
  EXPECT_DOUBLE_EQ(score.points[1].measured_seconds, 0.08);
  ASSERT_EQ(score.regrets.size(), 1u);
  EXPECT_THAT(AnswerText(*answer),
              AllOf(HasSubstr("as //analysis:plan predicts them"),
                    HasSubstr("dp 2, 1 x 4, ZeRO 3"),
                    HasSubstr("Median error "), HasSubstr("Median regret ")));
}

TEST(PlannerScore, RegretIsWhatTheFirstChoiceCosts) {
  // The planner's choice is the same in both studies, but right in only one.
  double largest = 0;
  for (const double fsdp_seconds : {0.011, 0.08}) {
    const auto answer = Analyze(Study(fsdp_seconds), {});
    ASSERT_TRUE(answer->plan_score.has_value());
    ASSERT_EQ(answer->plan_score->regrets.size(), 1u);
    const bool chose_fsdp =
        answer->plan_score->regrets[0].choice.prediction.layout.zero == 3;
    EXPECT_NEAR(
        answer->plan_score->median_regret,
        (chose_fsdp ? fsdp_seconds : 0.055) / std::min(0.055, fsdp_seconds) - 1,
        1e-9);
    largest = std::max(largest, answer->plan_score->median_regret);
  }
  EXPECT_GT(largest, 0.4);
}

TEST(PlannerScore, NamesTheLayoutsThatAreNotPlanned) {
  std::vector<RunTrace> runs = Study(0.08);
  runs.push_back(
      GptRun("hybrid", 2, 0.07, {{"context", "ulysses"}, {"cp", "2"}}));
  runs.push_back(GptRun("parameter_server", 2, 0.09));
  const auto answer = Analyze(std::move(runs), {});
  ASSERT_TRUE(answer->plan_score.has_value());
  EXPECT_THAT(answer->plan_score->left_out, testing::IsEmpty());
  EXPECT_THAT(answer->notes,
              Contains(AllOf(HasSubstr("Left out of the planner's score: "),
                             HasSubstr("--context=ulysses is not planned"))));
  EXPECT_THAT(answer->notes,
              Contains(AllOf(HasSubstr("Left out of the planner's score: "),
                             HasSubstr("parameter_server is not planned"))));
}

TEST(PlannerScore, SaysWhyThereIsNone) {
  std::vector<RunTrace> runs = Study(0.08);
  runs.erase(runs.begin());
  const auto answer = Analyze(std::move(runs), {});
  EXPECT_FALSE(answer->plan_score.has_value());
  EXPECT_THAT(answer->notes,
              Contains(AllOf(HasSubstr("No score of the planner: "),
                             HasSubstr("shows what computing takes"))));
}

TEST(PlannerScore, SaysNothingOfModelsThatItDoesNotKnow) {
  std::vector<RunTrace> runs = Study(0.08);
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) rank.run.flags["model"] = "mlp";
  }
  const auto answer = Analyze(std::move(runs), {});
  EXPECT_FALSE(answer->plan_score.has_value());
  EXPECT_THAT(answer->notes, Each(Not(HasSubstr("planner"))));
  EXPECT_THAT(AnswerText(*answer), Not(HasSubstr("planner")));
}

}  // namespace
}  // namespace rankwise
