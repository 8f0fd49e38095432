#include "analysis/ledger/ledger.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/ledger/cells_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr ThroughputConfig kNoWarmUp{0};

void ExpectParts(const LedgerParts& parts, const LedgerParts& expected) {
  EXPECT_NEAR(parts.compute_seconds, expected.compute_seconds, 1e-12);
  EXPECT_NEAR(parts.ExposedSeconds(), expected.ExposedSeconds(), 1e-12);
  EXPECT_NEAR(parts.bubble_seconds, expected.bubble_seconds, 1e-12);
  EXPECT_NEAR(parts.data_wait_seconds, expected.data_wait_seconds, 1e-12);
  EXPECT_NEAR(parts.residual_seconds, expected.residual_seconds, 1e-12);
}

Ledger LedgerOf(const RunTrace& run,
                const ThroughputConfig& config = kNoWarmUp) {
  const auto ledger = MeasureLedger(run, config);
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  return ledger.ok() ? *ledger : Ledger();
}

std::string Refusal(const RunTrace& run) {
  const auto ledger = MeasureLedger(run, kNoWarmUp);
  EXPECT_EQ(ledger.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(ledger.status().message());
}

TEST(LedgerTest, FindsTheParts) {
  const LedgerParts parts = {0.06, 0.02, 0, 0.01, 0.004};
  for (const char* trainer : {"single", "ddp"}) {
    const Ledger ledger = LedgerOf(MakeRunOf(
        {.binary = trainer}, [&](int64_t, int64_t) { return parts; }));
    ASSERT_EQ(ledger.ranks.size(), 1u) << trainer;
    EXPECT_EQ(ledger.ranks[0].stage, -1);
    ExpectParts(ledger.ranks[0].parts, parts);
    ExpectParts(ledger.critical, parts);
    EXPECT_DOUBLE_EQ(ledger.ranks[0].busy_seconds, 0.06);
    EXPECT_DOUBLE_EQ(ledger.optimizer_seconds, 0.006);
    EXPECT_EQ(ledger.imbalance_seconds, 0);
    EXPECT_EQ(ledger.noise_seconds, 0);
    EXPECT_NEAR(ledger.median_residual_share, 0.004 / 0.094, 1e-12);
    EXPECT_TRUE(ledger.separates_bubble);
  }
}

TEST(LedgerTest, ACapturedStepIsAllCompute) {
  RunTrace run = MakeRunOf({.world_size = 2}, [](int64_t, int64_t) {
    return LedgerParts{0.06, 0.02, 0, 0.01, 0.004};
  });
  EXPECT_FALSE(LedgerOf(run).IsCaptured());
  CaptureSteps(run);
  const Ledger ledger = LedgerOf(run);
  EXPECT_TRUE(ledger.IsCaptured());
  ExpectParts(ledger.critical, {0.08, 0, 0, 0.01, 0.004});
  EXPECT_NEAR(ledger.captured_seconds, 0.08, 1e-12);
  EXPECT_EQ(ledger.optimizer_seconds, 0);
  EXPECT_NEAR(ledger.median_residual_share, 0.004 / 0.094, 1e-12);
}

TEST(LedgerTest, FindsThePartsOfAPipeline) {
  const LedgerParts first = {0.05, 0.02, 0.03, 0.002, 0.001};
  const LedgerParts second = {0.07, 0.02, 0.01, 0.001, 0.002};
  const Ledger ledger = LedgerOf(MakeRunOf(
      {.binary = "pipeline",
       .world_size = 4,
       .schedule = "1f1b",
       .replicas = 2},
      [&](int64_t rank, int64_t) { return rank % 2 == 0 ? first : second; }));
  ASSERT_EQ(ledger.ranks.size(), 4u);
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ledger.ranks[rank].rank, rank);
    ExpectParts(ledger.ranks[rank].parts, rank % 2 == 0 ? first : second);
  }
  ExpectParts(ledger.critical, second);
  EXPECT_NEAR(ledger.imbalance_seconds, 0.01, 1e-12);
  EXPECT_NEAR(ledger.noise_seconds, 0, 1e-12);
  EXPECT_NEAR(ledger.MeanComputeSeconds(), 0.06, 1e-12);
  EXPECT_TRUE(ledger.separates_bubble);
}

TEST(LedgerTest, FindsWhatLayersWaitedForAlongEveryAxis) {
  RunTrace run = MakeRunOf({.binary = "tensor_parallel"}, [](int64_t, int64_t) {
    return LedgerParts{0.06, 0.02, 0, 0.01, 0.004};
  });
  for (StepRecord& step : run.ranks[0].steps) {
    step.exposed_by_axis_seconds = {{"tp", 0.012}, {"dp", 0.008}};
  }
  const LedgerParts parts = LedgerOf(run).critical;
  ExpectParts(parts, {0.06, 0.02, 0, 0.01, 0.004});
  EXPECT_NEAR(parts.exposed_tp_seconds, 0.012, 1e-12);
  EXPECT_NEAR(parts.exposed_dp_seconds, 0.008, 1e-12);
  EXPECT_EQ(parts.exposed_cp_seconds + parts.exposed_pp_seconds, 0);
}

// Within the schedule's actions, but not part of compute.
TEST(LedgerTest, FindsWhatLayersOfAPipelineWaitedFor) {
  RunTrace run =
      MakeRunOf({.binary = "hybrid", .world_size = 2, .schedule = "1f1b"},
                [](int64_t, int64_t) {
                  return LedgerParts{0.06, 0.02, 0.03, 0.01, 0.004};
                });
  for (RankTrace& trace : run.ranks) {
    for (StepRecord& step : trace.steps) {
      step.exposed_by_axis_seconds = {
          {"dp", 0.01}, {"tp", 0.02}, {"cp", 0.003}};
      step.exposed_comm_seconds = 0.033;
    }
  }
  const LedgerParts parts = LedgerOf(run).critical;
  EXPECT_NEAR(parts.compute_seconds, 0.06 - 0.023, 1e-12);
  EXPECT_NEAR(parts.exposed_tp_seconds, 0.02, 1e-12);
  EXPECT_NEAR(parts.exposed_cp_seconds, 0.003, 1e-12);
  EXPECT_NEAR(parts.exposed_pp_seconds, 0.01, 1e-12);
  EXPECT_NEAR(parts.exposed_dp_seconds, 0.01, 1e-12);
  EXPECT_NEAR(parts.residual_seconds, 0.004, 1e-12);
  EXPECT_NEAR(parts.Total(), 0.124, 1e-12);
}

TEST(LedgerTest, PartsAddUpToTheStepWhateverItHolds) {
  std::mt19937_64 random(3);
  std::exponential_distribution<double> draw(100);
  for (const char* schedule : {"", "1f1b"}) {
    const RunTrace run =
        MakeRunOf({.binary = schedule[0] == 0 ? "ddp" : "pipeline",
                   .world_size = 3,
                   .steps = 200,
                   .schedule = schedule},
                  [&](int64_t, int64_t) {
                    return LedgerParts{draw(random), draw(random),
                                       schedule[0] == 0 ? 0 : draw(random),
                                       draw(random), draw(random)};
                  });
    const Ledger ledger = LedgerOf(run);
    double most = 0;
    for (int64_t rank = 0; rank < 3; ++rank) {
      double sum = 0;
      for (const StepRecord& step : run.ranks[rank].steps) {
        sum += step.step_seconds;
      }
      EXPECT_NEAR(ledger.ranks[rank].parts.Total(), sum / 200, 1e-12);
      most = std::max(most, sum / 200);
    }
    EXPECT_NEAR(ledger.critical.Total(), most, 1e-12);
    EXPECT_GE(ledger.noise_seconds, 0);
    EXPECT_LE(ledger.noise_seconds, ledger.imbalance_seconds);
  }
}

TEST(LedgerTest, LeavesOutTheWarmUp) {
  const RunTrace run = MakeRunOf({.world_size = 2}, [](int64_t, int64_t step) {
    return LedgerParts{step <= 10 ? 5 : 0.1};
  });
  EXPECT_NEAR(LedgerOf(run, {10}).critical.Total(), 0.1, 1e-12);
}

TEST(LedgerTest, TheCriticalRankWaitedLeast) {
  // Every third step, rank 1 waits for its data, and rank 0 for rank 1.
  const RunTrace run =
      MakeRunOf({.world_size = 2, .steps = 30}, [](int64_t rank, int64_t step) {
        if (step % 3 != 0 || rank == 0) {
          return LedgerParts{0.1, step % 3 == 0 ? 0.06 : 0.01};
        }
        return LedgerParts{0.1, 0.01, 0, 0.05};
      });
  ExpectParts(LedgerOf(run).critical, {0.1, 0.01, 0, 0.05 / 3, 0});
}

// By rank, then step.
using ComputeSeconds = std::vector<std::vector<double>>;

// Returns ranks with these computation times that wait in each step for the
// slowest.
RunTrace RunThatWaits(const ComputeSeconds& compute) {
  return MakeRunOf({.world_size = static_cast<int64_t>(compute.size()),
                    .steps = static_cast<int64_t>(compute[0].size())},
                   [&](int64_t rank, int64_t step) {
                     double slowest = 0;
                     for (const std::vector<double>& steps : compute) {
                       slowest = std::max(slowest, steps[step - 1]);
                     }
                     const double own = compute[rank][step - 1];
                     return LedgerParts{own, slowest - own};
                   });
}

// Computation times, normal around `levels` with a deviation of 2 ms.
RunTrace NoisyRun(const std::vector<double>& levels, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.002);
  ComputeSeconds compute;
  for (double level : levels) {
    std::vector<double>& steps = compute.emplace_back();
    for (int i = 0; i < 400; ++i) steps.push_back(level + noise(random));
  }
  return RunThatWaits(compute);
}

TEST(LedgerTest, AStragglerIsImbalance) {
  // 4 standard errors of a mean of 400 steps.
  const double tolerance = 4 * 0.002 / std::sqrt(400);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Ledger ledger = LedgerOf(NoisyRun({0.1, 0.1, 0.12, 0.1}, seed));
    EXPECT_NEAR(ledger.imbalance_seconds - ledger.noise_seconds,
                0.02 - 0.02 / 4, tolerance);
    EXPECT_NEAR(ledger.noise_seconds, 0, 1e-5);
  }
}

TEST(LedgerTest, TheSlowestOfEqualRanksIsNoise) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Ledger ledger = LedgerOf(NoisyRun({0.1, 0.1, 0.1, 0.1}, seed));
    // Mean of the largest of 4 standard normal variables (Harter 1961).
    const double expected = 0.002 * 1.02938;
    EXPECT_NEAR(ledger.imbalance_seconds, expected, 0.15 * expected);
    EXPECT_NEAR(ledger.noise_seconds, expected, 0.2 * expected);
    // The means of 400 steps differ by chance.
    EXPECT_NEAR(ledger.imbalance_seconds - ledger.noise_seconds, 0, 3e-4);
  }
}

TEST(LedgerTest, NoiseOfALongRunIsThatOfAShortOne) {
  std::mt19937_64 random(11);
  std::exponential_distribution<double> noise(1000);
  ComputeSeconds compute(2);
  for (std::vector<double>& steps : compute) {
    for (int i = 0; i < 150000; ++i) steps.push_back(0.1 + noise(random));
  }
  const Ledger ledger = LedgerOf(RunThatWaits(compute));
  // The larger of two exponential variables is larger by half on average.
  EXPECT_NEAR(ledger.noise_seconds, 5e-4, 1e-5);
}

TEST(LedgerTest, WhatSlowsAllRanksTogetherIsNeither) {
  std::mt19937_64 random(5);
  std::exponential_distribution<double> noise(100);
  ComputeSeconds compute(2);
  for (std::vector<double>& steps : compute) {
    for (int i = 0; i < 100; ++i) steps.push_back(0.1 + noise(random));
  }
  EXPECT_GT(LedgerOf(RunThatWaits(compute)).noise_seconds, 0.003);
  compute[1] = compute[0];
  const Ledger together = LedgerOf(RunThatWaits(compute));
  EXPECT_NEAR(together.imbalance_seconds, 0, 1e-12);
  EXPECT_NEAR(together.noise_seconds, 0, 1e-12);
}

TEST(LedgerTest, RanksThatAreSlowInTurnAreMoreThanChance) {
  // Each is slow in half of the steps, but never both; independent ranks would
  // be both slow, or both fast, in half of them.
  ComputeSeconds compute(2, std::vector<double>(100, 0.1));
  for (int i = 0; i < 100; ++i) compute[i < 50 ? 0 : 1][i] = 0.12;
  const Ledger ledger = LedgerOf(RunThatWaits(compute));
  EXPECT_NEAR(ledger.imbalance_seconds, 0.01, 1e-12);
  EXPECT_NEAR(ledger.noise_seconds, 0.005, 1e-12);
}

TEST(LedgerTest, LatenessAfterTheWaitingIsCarriedOver) {
  // Each rank in turn leaves the optimizer 10 ms late, so the other waits for
  // it in the next step: a step of the job consists of 100 + 10 ms of
  // computation and 20 ms of communication. A rank's steps are alternately 10
  // ms longer and shorter.
  const Ledger ledger = LedgerOf(MakeRunOf(
      {.world_size = 2, .steps = 100}, [](int64_t rank, int64_t step) {
        const bool late = (rank + step) % 2 == 0;
        return LedgerParts{late ? 0.11 : 0.1, late ? 0.03 : 0.02};
      }));
  ExpectParts(ledger.critical, {0.11, 0.02, 0, 0, 0});
  EXPECT_NEAR(ledger.imbalance_seconds, 0.11 - 0.105, 1e-12);
  // At least one of two randomly late ranks is late in 3 of 4 steps.
  EXPECT_NEAR(ledger.noise_seconds, 0.0075 - 0.005, 1e-12);
}

TEST(LedgerTest, RanksThatDoNotWaitAreAsLateAsTheLongest) {
  // Without communication (--skip_communication) ranks do not accumulate each
  // other's delays.
  const Ledger ledger = LedgerOf(MakeRunOf(
      {.world_size = 2, .steps = 100}, [](int64_t rank, int64_t step) {
        const bool slow = (rank + step) % 2 == 0;
        return LedgerParts{slow ? 0.14 : 0.1, 0, 0, rank == 0 ? 0 : 0.001};
      }));
  ExpectParts(ledger.critical, {0.12, 0, 0, 0.001, 0});
  EXPECT_NEAR(ledger.imbalance_seconds, 0, 1e-12);
}

TEST(LedgerTest, OldRecordsKeepTransfersInTheBubble) {
  RunTrace run =
      MakeRunOf({.binary = "pipeline", .world_size = 2, .schedule = "gpipe"},
                [](int64_t, int64_t) {
                  return LedgerParts{0.05, 0.02, 0.03, 0, 0.001};
                });
  run.ranks[1].schedules[7].exposed_transfer_seconds =
      std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(LedgerOf(run).separates_bubble);
  for (RankTrace& trace : run.ranks) {
    for (ScheduleRecord& schedule : trace.schedules) {
      schedule.exposed_transfer_seconds =
          std::numeric_limits<double>::quiet_NaN();
    }
  }
  ExpectParts(LedgerOf(run).critical, {0.05, 0.015, 0.035, 0, 0.001});
}

// Two stages in one process: 40 ms on the first device, 30 ms on the second, 5
// ms in the optimizer.
RunTrace LocalStages() {
  RunTrace run = MakeRunOf(
      {.binary = "model_parallel", .world_size = 1, .schedule = "naive"},
      [](int64_t, int64_t) {
        return LedgerParts{0.05, 0, 0.03, 0, 0.001};
      });
  std::vector<ScheduleRecord> stages;
  for (ScheduleRecord record : run.ranks[0].schedules) {
    record.pipeline_size = 2;
    record.schedule_seconds = 0.075;
    record.exposed_transfer_seconds = 0;
    for (int64_t stage : {0, 1}) {
      record.pipeline_rank = stage;
      record.busy_seconds = stage == 0 ? 0.04 : 0.03;
      record.wait_seconds = record.schedule_seconds - record.busy_seconds;
      stages.push_back(record);
    }
  }
  run.ranks[0].schedules = stages;
  return run;
}

TEST(LedgerTest, StagesOfOneProcessHaveALedgerEach) {
  const Ledger ledger = LedgerOf(LocalStages());
  ASSERT_EQ(ledger.ranks.size(), 2u);
  EXPECT_EQ(ledger.ranks[0].stage, 0);
  EXPECT_EQ(ledger.ranks[1].stage, 1);
  ExpectParts(ledger.ranks[0].parts, {0.045, 0, 0.035, 0, 0.001});
  ExpectParts(ledger.ranks[1].parts, {0.035, 0, 0.045, 0, 0.001});
  ExpectParts(ledger.critical, ledger.ranks[0].parts);
  EXPECT_NEAR(ledger.imbalance_seconds, 0.005, 1e-12);
}

TEST(LedgerTest, RefusesStepsWithoutTheirScheduleRecords) {
  RunTrace run = LocalStages();
  run.ranks[0].schedules.erase(run.ranks[0].schedules.begin() + 9);
  EXPECT_THAT(Refusal(run),
              HasSubstr("run.jsonl: step 5 of rank 0 has 1 schedule records"));
  run = LocalStages();
  run.ranks[0].schedules[9].pipeline_rank = 0;
  EXPECT_THAT(Refusal(run), HasSubstr("step 5"));
  run = LocalStages();
  run.ranks[0].schedules[1].pipeline_rank = 0;
  EXPECT_THAT(Refusal(run), HasSubstr("step 1"));
  run = LocalStages();
  run.ranks[0].schedules.resize(4);
  EXPECT_THAT(Refusal(run), HasSubstr("step 3 of rank 0 has 0"));
}

TEST(LedgerTest, RefusesRunsThatCannotBeMeasured) {
  EXPECT_THAT(Refusal(MakeRun({.steps = 4})), HasSubstr("run.jsonl: 4 steps"));
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks.pop_back();
  EXPECT_THAT(Refusal(run), HasSubstr("1 of its 2 ranks"));
  EXPECT_THAT(Refusal(MakeRun({.step_seconds = 0})), HasSubstr("took no time"));
}

template <typename Distribution>
std::vector<std::vector<double>> Draw(int ranks, int steps,
                                      Distribution distribution) {
  std::mt19937_64 random(7);
  std::vector<std::vector<double>> samples(ranks);
  for (std::vector<double>& sample : samples) {
    for (int i = 0; i < steps; ++i) sample.push_back(distribution(random));
  }
  return samples;
}

TEST(MeanLedgerTest, AveragesThePartsOfRepetitions) {
  const auto run_of = [](double compute, double exposed) {
    return LedgerOf(MakeRunOf({.world_size = 2}, [=](int64_t rank, int64_t) {
      return rank == 0 ? LedgerParts{compute, exposed}
                       : LedgerParts{compute + exposed, 0};
    }));
  };
  const Ledger mean = MeanLedger({run_of(0.04, 0.02), run_of(0.06, 0.03)});
  ExpectParts(mean.critical, {0.075, 0});
  ASSERT_EQ(mean.ranks.size(), 2u);
  EXPECT_EQ(mean.ranks[1].rank, 1);
  ExpectParts(mean.ranks[0].parts, {0.05, 0.025});
  EXPECT_DOUBLE_EQ(mean.ranks[0].busy_seconds, 0.05);
  EXPECT_NEAR(mean.imbalance_seconds, 0.0125, 1e-12);
}

TEST(ExpectedMaximumTest, OneSampleIsItsMean) {
  EXPECT_DOUBLE_EQ(ExpectedMaximum({{1, 2, 6}}), 3);
}

TEST(ExpectedMaximumTest, EqualsTheMeanOverAllCombinations) {
  // Maxima over (1|4) and (2|3|7): 2, 3, 7, 4, 4, 7.
  EXPECT_NEAR(ExpectedMaximum({{4, 1}, {3, 7, 2}}), 27.0 / 6, 1e-12);
}

TEST(ExpectedMaximumTest, CountsValuesThatComeSeveralTimes) {
  EXPECT_NEAR(ExpectedMaximum({{1, 1, 1, 5}, {1, 1, 1, 5}}),
              1 + 4 * (1 - 0.75 * 0.75), 1e-12);
}

TEST(ExpectedMaximumTest, MatchesTheOrderStatisticsOfNormalNoise) {
  // Mean of the largest of N standard normal variables (Harter 1961).
  const double expected[] = {0.56419, 0.84628, 1.02938, 1.16296};
  for (int ranks = 2; ranks <= 5; ++ranks) {
    EXPECT_NEAR(ExpectedMaximum(Draw(ranks, 50000,
                                     std::normal_distribution<double>(10, 2))),
                10 + 2 * expected[ranks - 2], 0.02)
        << ranks;
  }
}

TEST(ExpectedMaximumTest, MatchesTheOrderStatisticsOfOtherNoise) {
  EXPECT_NEAR(
      ExpectedMaximum(Draw(9, 50000, std::uniform_real_distribution<double>())),
      0.9, 0.002);
  double harmonic = 0;
  for (int n = 1; n <= 64; ++n) harmonic += 1.0 / n;
  EXPECT_NEAR(
      ExpectedMaximum(Draw(64, 20000, std::exponential_distribution<double>())),
      harmonic, 0.03);
}

TEST(ExpectedMaximumTest, FollowsTheRankThatIsAlwaysLargest) {
  auto samples = Draw(3, 50000, std::normal_distribution<double>(10, 1));
  for (double& value : samples[1]) value += 50;
  EXPECT_NEAR(ExpectedMaximum(samples), 60, 0.02);
}

TEST(ExpectedMaximumTest, HoldsForMoreRanksThanADoubleHasRangeFor) {
  // The product starts at 1e-3 to the power of 200.
  const std::vector<std::vector<double>> samples(
      200, Draw(1, 1000, std::uniform_real_distribution<double>())[0]);
  EXPECT_NEAR(ExpectedMaximum(samples), 200.0 / 201, 0.005);
}

}  // namespace

}  // namespace rankwise
