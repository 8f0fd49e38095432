#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/ledger/cells_for_test.h"
#include "analysis/ledger/ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int kTrials = 500;
constexpr double kStep = 0.1;  // seconds of own time, without any delay

// Ranks of one cell with noise of known kind.
struct Noise {
  double deviation = 0.05;   // of the logarithm, of each rank by itself
  double correlation = 0.4;  // of that with the step before
  double of_machine = 0.05;  // of the logarithm, of all ranks alike
  double outlier_odds = 0.02;
  double outlier_seconds = 3 * kStep;
};

struct Trial {
  int64_t ranks = 2;
  int64_t steps = 60;
  int repetitions = 2;
  int64_t slow_rank = 0;
  double delay = 0;
};

class Machine {
 public:
  Machine(const Noise& noise, uint64_t seed) : noise_(noise), random_(seed) {}

  std::vector<RunTrace> Run(const Trial& trial) {
    std::vector<RunTrace> runs;
    for (int i = 0; i < trial.repetitions; ++i) {
      std::map<int64_t, double> state, shared;
      for (int64_t rank = 0; rank < trial.ranks; ++rank) {
        state[rank] = normal_(random_);
      }
      runs.push_back(
          MakeRunOf({.world_size = trial.ranks, .steps = trial.steps},
                    [&](int64_t rank, int64_t step) {
                      if (shared.count(step) == 0)
                        shared[step] = normal_(random_);
                      return OfStep(trial, rank, shared[step], &state[rank]);
                    }));
    }
    return runs;
  }

 private:
  LedgerParts OfStep(const Trial& trial, int64_t rank, double shared,
                     double* state) {
    const double rho = noise_.correlation;
    *state = rho * *state + std::sqrt(1 - rho * rho) * normal_(random_);
    double seconds = kStep * std::exp(noise_.deviation * *state +
                                      noise_.of_machine * shared);
    if (uniform_(random_) < noise_.outlier_odds) {
      seconds += noise_.outlier_seconds;
    }
    if (rank == trial.slow_rank) seconds += trial.delay;
    return {0.9 * seconds, 0.01, 0, 0.1 * seconds, 0};
  }

  const Noise noise_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

std::optional<Straggler> Find(const std::vector<RunTrace>& runs) {
  std::vector<const RunTrace*> pointers;
  for (const RunTrace& run : runs) pointers.push_back(&run);
  const auto found = FindStraggler(pointers, {0});
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *found : std::nullopt;
}

struct Outcome {
  int named = 0;    // any rank
  int right = 0;    // the slow one
  int covered = 0;  // and the interval holds its delay
};

// Of trials with 2 to 8 ranks in turn.
Outcome Try(Trial trial, const Noise& noise) {
  Outcome outcome;
  for (int i = 0; i < kTrials; ++i) {
    trial.ranks = 2 + i % 7;
    trial.slow_rank = i % trial.ranks;
    const auto found = Find(Machine(noise, 1000 + i).Run(trial));
    if (!found) continue;
    ++outcome.named;
    if (found->rank != trial.slow_rank) continue;
    ++outcome.right;
    outcome.covered += found->interval.low <= trial.delay &&
                       trial.delay <= found->interval.high;
  }
  return outcome;
}

void ExpectRecovered(const std::string& name, const Trial& trial,
                     const Noise& noise) {
  const Outcome outcome = Try(trial, noise);
  const double coverage = static_cast<double>(outcome.covered) / kTrials;
  std::cout << name << ": the right rank in " << outcome.right << " of "
            << kTrials << " trials, its delay covered in " << 100 * coverage
            << " %\n";
  EXPECT_GE(outcome.right, 0.99 * kTrials) << name;
  EXPECT_GE(coverage, 0.90) << name;
  EXPECT_LE(coverage, 0.99) << name;
}

TEST(StragglerTest, IsNamedAndItsIntervalCoversTheTruth) {
  const Noise correlated;
  const Noise independent{.correlation = 0, .outlier_odds = 0};
  ExpectRecovered("independent steps", {.delay = 0.008}, independent);
  ExpectRecovered("correlated steps and outliers", {.delay = 0.008},
                  correlated);
  ExpectRecovered("one run of 100 steps",
                  {.steps = 100, .repetitions = 1, .delay = 0.01}, correlated);
  ExpectRecovered("strongly correlated steps", {.steps = 400, .delay = 0.01},
                  {.correlation = 0.8});
  ExpectRecovered("five runs of 20 steps",
                  {.steps = 20, .repetitions = 5, .delay = 0.01}, correlated);
}

TEST(StragglerTest, NoneIsInvented) {
  const Outcome of_two = Try({.delay = 0}, {});
  const Outcome of_one =
      Try({.steps = 30, .repetitions = 1}, {.deviation = 0.2});
  std::cout << "without a straggler one was named in " << of_two.named
            << " and in " << of_one.named << " of " << kTrials << " trials\n";
  EXPECT_LE(of_two.named, 0.05 * kTrials);
  EXPECT_LE(of_one.named, 0.05 * kTrials);
}

PartsForTest Slow(int64_t slow_rank, double delay) {
  return [=](int64_t rank, int64_t step) {
    const double wobble = 1e-4 * static_cast<double>((3 * step + rank) % 5);
    return LedgerParts{kStep + wobble + (rank == slow_rank ? delay : 0), 0.01};
  };
}

TEST(StragglerTest, SaysHowMuchOfTheStepItCosts) {
  const auto found =
      Find({MakeRunOf({.world_size = 4, .steps = 40}, Slow(2, 0.011))});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 2);
  EXPECT_NEAR(found->seconds, 0.011, 2e-4);
  EXPECT_NEAR(found->share, 0.011 / 0.121, 2e-3);
  EXPECT_LE(found->interval.low, found->seconds);
  EXPECT_GE(found->interval.high, found->seconds);
}

TEST(StragglerTest, LessThanAHundredthOfTheStepIsNone) {
  EXPECT_FALSE(
      Find({MakeRunOf({.world_size = 4, .steps = 40}, Slow(2, 0.0009))}));
}

TEST(StragglerTest, WhatOneRepetitionDoesNotShowIsNone) {
  const RunForTest config = {.world_size = 3, .steps = 40};
  const RunTrace slow = MakeRunOf(config, Slow(1, 0.02));
  EXPECT_TRUE(Find({slow, slow, slow}));
  EXPECT_FALSE(Find({slow, slow, MakeRunOf(config, Slow(1, -0.001))}));
}

TEST(StragglerTest, StagesAreComparedOverReplicasOnly) {
  RunForTest config = {
      .binary = "pipeline", .world_size = 4, .steps = 40, .schedule = "1f1b"};
  const auto stages_differ = [](int64_t slow_rank) {
    return [=](int64_t rank, int64_t step) {
      LedgerParts parts = Slow(slow_rank, 0.01)(rank, step);
      if (rank % 2 == 1) parts.compute_seconds += 0.05;
      return parts;
    };
  };
  EXPECT_FALSE(Find({MakeRunOf(config, stages_differ(1))}));
  config.replicas = 2;  // ranks 0 and 2 are the first stage
  EXPECT_FALSE(Find({MakeRunOf(config, stages_differ(-1))}));
  const auto found = Find({MakeRunOf(config, stages_differ(2))});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 2);
  EXPECT_NEAR(found->seconds, 0.01, 2e-4);
}

TEST(StragglerTest, TooShortOrAloneIsNone) {
  EXPECT_FALSE(Find({MakeRunOf({.world_size = 2, .steps = 14}, Slow(1, 0.1))}));
  EXPECT_FALSE(Find({MakeRunOf({.binary = "single"}, Slow(0, 0.1))}));
  EXPECT_FALSE(Find({}));
}

TEST(StragglerTest, RefusesDifferentRanks) {
  const RunTrace two = MakeRun({.world_size = 2});
  const RunTrace three = MakeRun({.world_size = 3});
  const std::vector<const RunTrace*> runs = {&two, &three};
  const auto found = FindStraggler(runs, {0});
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("run.jsonl"));
}

}  // namespace
}  // namespace rankwise
