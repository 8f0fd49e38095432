// Coverage of the interval printed by PredictionTable for the step of a future
// run: runs and launches of comm_bench differ, and collectives grow as rings or
// trees. RANKWISE_TRIALS=1000 runs all combinations with 1000 trials each.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/runs_for_test.h"

namespace rankwise {
namespace {

bool IsComplete() { return std::getenv("RANKWISE_TRIALS") != nullptr; }

int Trials() {
  const char* trials = std::getenv("RANKWISE_TRIALS");
  return trials == nullptr ? 25 : std::atoi(trials);
}

// The printed row of a layout: its interval in seconds, and the interval's
// kind.
struct Printed {
  Interval interval;
  std::string kind;
};

Printed Row(Predictor& predictor, const Layout& layout) {
  const auto prediction = predictor.Predict(layout);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  if (!prediction.ok()) return {};
  const std::string text = PredictionTable({*prediction});
  std::smatch match;
  const std::regex row(
      R"(\[([-0-9.e+]+), ([-0-9.e+]+)\].*%  +[-0-9.e+]+ +(.*))");
  EXPECT_TRUE(std::regex_search(text, match, row)) << text;
  return {{std::stod(match[1]) / 1e3, std::stod(match[2]) / 1e3}, match[3]};
}

struct Study {
  Growth law = Growth::kRing;
  int repetitions = 3;
  std::vector<int64_t> recorded = {2, 4};  // ranks
  bool tail = false;  // heavy-tailed differences of runs and launches
};

double Alpha(Growth law, int64_t ranks) {
  return 2e-4 * AlphaGrowth(law, ranks);
}
double Beta(Growth law, int64_t ranks) { return 2e-9 * BetaGrowth(law, ranks); }

// Draws the factor by which placement changes a run's computing time.
class Placement {
 public:
  Placement(bool tail, uint64_t seed) : tail_(tail), random_(seed) {}
  double Next() {
    return std::exp(0.03 * (tail_ ? student_(random_) : normal_(random_)));
  }

 private:
  bool tail_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::student_t_distribution<double> student_{3};
};

DdpRunForTest DdpRun(const Study& study, int64_t ranks, double placement) {
  DdpRunForTest run;
  run.world_size = ranks;
  run.alpha_seconds = Alpha(study.law, ranks);
  run.beta_seconds_per_byte = Beta(study.law, ranks);
  run.trace.before_backward_seconds *= placement;
  run.trace.backward_seconds *= placement;
  for (ReadyBucket& bucket : run.trace.buckets)
    bucket.ready_seconds *= placement;
  return run;
}

double TrueStep(const Study& study, int64_t ranks, double placement) {
  const DdpRunForTest run = DdpRun(study, ranks, placement);
  std::vector<double> seconds;
  for (const ReadyBucket& bucket : run.trace.buckets)
    seconds.push_back(run.alpha_seconds +
                      bucket.bytes * run.beta_seconds_per_byte);
  return SimulateDdpStep(run.trace, seconds).step_seconds;
}

NetworkModel Network(const Study& study, uint64_t seed) {
  std::vector<RunTrace> runs;
  for (const int64_t ranks : study.recorded) {
    BenchRunForTest bench;
    bench.world_size = ranks;
    bench.seconds = [&study, ranks](double bytes) {
      return Alpha(study.law, ranks) + Beta(study.law, ranks) * bytes;
    };
    bench.noise = {.calls = 42, .deviation = 0.03, .correlation = 0.5};
    bench.seed = 1000 * seed + static_cast<uint64_t>(ranks);
    for (RunTrace& run : MakeLaunches(bench, 3, 0.05, study.tail))
      runs.push_back(std::move(run));
  }
  auto network = FitNetwork(runs);
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

// Returns, for each of `worlds`, the kind of the printed interval and the share
// of the studies in which it contained the truth.
std::vector<std::pair<std::string, double>> Cover(
    const Study& study, const std::vector<int64_t>& worlds) {
  std::vector<ShareForTest> held(worlds.size());
  std::vector<std::string> kinds(worlds.size());
  for (int trial = 0; trial < Trials(); ++trial) {
    Placement placement(study.tail, 7 * trial + 1);
    std::vector<RunTrace> runs;
    for (const int64_t ranks : study.recorded) {
      for (int i = 0; i < study.repetitions; ++i) {
        DdpRunForTest run = DdpRun(study, ranks, placement.Next());
        run.run_id = absl::StrCat("ddp", ranks, "-", i);
        runs.push_back(MakeDdpRun(run));
      }
    }
    auto predictor = RecordedPredictor::Create(runs, Network(study, trial), {});
    EXPECT_TRUE(predictor.ok()) << predictor.status();
    for (size_t i = 0; i < worlds.size(); ++i) {
      const Printed row = Row(*predictor, {.dp = worlds[i], .micro_batch = 64});
      const double truth = TrueStep(study, worlds[i], placement.Next());
      held[i].Add(row.interval.low <= truth && truth <= row.interval.high);
      kinds[i] = row.kind;
    }
  }
  std::vector<std::pair<std::string, double>> result;
  for (size_t i = 0; i < worlds.size(); ++i) {
    std::printf(
        "%s, %zu world sizes, %d repetitions%s, %d ranks: %.1f %% (%s)\n",
        std::string(GrowthName(study.law)).c_str(), study.recorded.size(),
        study.repetitions, study.tail ? " with tails" : "",
        static_cast<int>(worlds[i]), 100 * held[i].share(), kinds[i].c_str());
    result.push_back({kinds[i], held[i].share()});
  }
  return result;
}

TEST(PredictionCoverage, OfDdp) {
  for (const Growth law : {Growth::kRing, Growth::kTree}) {
    for (const bool tail : {false, true}) {
      for (const int repetitions : {2, 3, 5, 10}) {
        if ((repetitions != 3 || !tail) && !IsComplete()) continue;
        for (const auto& [kind, share] :
             Cover({.law = law, .repetitions = repetitions, .tail = tail},
                   {2, 16, 64, 1024})) {
          EXPECT_EQ(kind, "95 %");
          EXPECT_GE(share, 0.85);  // 95 %, with few trials
        }
      }
    }
  }
}

TEST(PredictionCoverage, FromOneWorldSizeIsARangeThatHoldsEitherLaw) {
  for (const Growth law : {Growth::kRing, Growth::kTree}) {
    for (const auto& [kind, share] :
         Cover({.law = law, .recorded = {2}}, {16, 64, 1024})) {
      EXPECT_EQ(kind, "range, if growth tree to ring");
      EXPECT_GE(share, 0.85);  // 95 %, with few trials
    }
  }
}

// Every configuration, recorded or predicted, deviates from its timelines by a
// random factor.
TEST(PredictionCoverage, OfPipelines) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  ShareForTest held;
  std::string kind;
  for (int trial = 0; trial < 2 * Trials(); ++trial) {
    const auto run_of = [&](const char* schedule, int64_t micro_batches,
                            double error) {
      PipelineRunForTest run;
      run.schedule = schedule;
      run.micro_batches = micro_batches;
      for (double* cost :
           {&run.costs.forward_seconds, &run.costs.backward_seconds})
        *cost *= error;
      run.outside_seconds *= error;
      return run;
    };
    std::vector<RunTrace> runs;
    const auto add = [&](const char* schedule, int64_t micro_batches) {
      const double error = std::exp(0.05 * normal(random));
      for (int i = 0; i < 3; ++i) {
        PipelineRunForTest run = run_of(
            schedule, micro_batches, error * std::exp(0.01 * normal(random)));
        run.run_id = absl::StrCat(schedule, micro_batches, "-", i);
        runs.push_back(MakePipelineRun(run));
      }
    };
    add("1f1b", 4);
    add("1f1b", 8);
    add("gpipe", 4);
    add("gpipe", 8);
    auto predictor = RecordedPredictor::Create(runs, FlatNetwork(0, 0), {});
    ASSERT_TRUE(predictor.ok()) << predictor.status();
    const Printed row = Row(
        *predictor,
        {.pp = 2, .schedule = "1f1b", .micro_batch = 16, .micro_batches = 16});
    const double truth = PipelineStepSeconds(
        run_of("1f1b", 16, std::exp(0.05 * normal(random))));
    held.Add(row.interval.low <= truth && truth <= row.interval.high);
    kind = row.kind;
  }
  std::printf("%s\n", held.ToString("pipelines").c_str());
  EXPECT_EQ(kind, "95 %");
  EXPECT_GE(held.share(), 0.85);
}

TEST(PredictionCoverage, APipelineWithoutOthersToTryTheModelOnIsARange) {
  std::vector<RunTrace> runs;
  for (int i = 0; i < 3; ++i) {
    PipelineRunForTest run;
    run.run_id = absl::StrCat("pipeline", i);
    runs.push_back(MakePipelineRun(run));
  }
  auto predictor = RecordedPredictor::Create(runs, FlatNetwork(0, 0), {});
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  EXPECT_EQ(
      Row(*predictor,
          {.pp = 2, .schedule = "1f1b", .micro_batch = 16, .micro_batches = 8})
          .kind,
      "range, if model exact");
}

}  // namespace
}  // namespace rankwise
