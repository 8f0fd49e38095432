#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
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

constexpr double kStep = 0.1;  // own time without delay, in seconds

// Standard deviations of the noise of one cell's ranks.
struct Noise {
  double placement = 0.02;   // of the logarithm, per rank and run
  double of_rank_0 = 1;      // factor on rank 0's placement
  double deviation = 0.05;   // of the logarithm, per rank and step
  double correlation = 0.4;  // of `deviation`, lag-1
  double of_machine = 0.05;  // of the logarithm, common to all ranks of a step
  double outlier_odds = 0.02;
  double outlier_seconds = 3 * kStep;
};

struct Trial {
  int64_t ranks = 2;
  int64_t steps = 20;
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
      std::vector<double> placement;
      for (int64_t rank = 0; rank < trial.ranks; ++rank) {
        state[rank] = normal_(random_);
        placement.push_back(std::exp(noise_.placement * normal_(random_) *
                                     (rank == 0 ? noise_.of_rank_0 : 1)));
      }
      runs.push_back(MakeRunOf(
          {.world_size = trial.ranks, .steps = trial.steps},
          [&](int64_t rank, int64_t step) {
            if (shared.count(step) == 0) shared[step] = normal_(random_);
            return OfStep(
                trial, rank,
                placement[rank] * std::exp(noise_.of_machine * shared[step]),
                &state[rank]);
          }));
    }
    return runs;
  }

 private:
  LedgerParts OfStep(const Trial& trial, int64_t rank, double factor,
                     double* state) {
    const double rho = noise_.correlation;
    *state = rho * *state + std::sqrt(1 - rho * rho) * normal_(random_);
    double seconds = kStep * factor * std::exp(noise_.deviation * *state);
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
  double named = 0;    // share of the trials that report a rank
  double right = 0;    // share of the trials that report the slow rank
  double covered = 0;  // share of `right` whose bound does not exceed the delay
};

Outcome Try(const std::string& name, Trial trial, const Noise& noise,
            int trials) {
  Outcome outcome;
  for (int i = 0; i < trials; ++i) {
    trial.slow_rank = i % trial.ranks;
    const auto found = Find(Machine(noise, 1000 + i).Run(trial));
    if (!found) continue;
    ++outcome.named;
    if (found->rank != trial.slow_rank) continue;
    ++outcome.right;
    outcome.covered += found->least_seconds <= trial.delay;
  }
  outcome.covered /= std::max(1.0, outcome.right);
  outcome.right /= trials;
  outcome.named /= trials;
  std::cout << name << ", " << trial.ranks << " ranks, " << trial.repetitions
            << (trial.repetitions == 1 ? " run: " : " runs: ") << trials
            << " trials";
  if (trial.delay > 0) {
    std::cout << ", the right rank in " << 100 * outcome.right
              << " %, its delay above the bound in " << 100 * outcome.covered
              << " %\n";
  } else {
    std::cout << ", a false one in " << 100 * outcome.named << " %\n";
  }
  return outcome;
}

// RANKWISE_TRIALS overrides the number of trials of every combination:
// ./bazelw test //analysis/ledger:straggler_test --test_output=all
//     --test_timeout=3600 --test_env=RANKWISE_TRIALS=2000
int TrialsOr(int trials) {
  const char* more = std::getenv("RANKWISE_TRIALS");
  return more == nullptr ? trials : std::atoi(more);
}

void ExpectFound(const std::string& name, const Trial& trial,
                 const Noise& noise) {
  const Outcome outcome = Try(name, trial, noise, TrialsOr(50));
  EXPECT_GE(outcome.right, 0.8) << name;
  EXPECT_GE(outcome.covered, 0.9) << name;
}

TEST(StragglerTest, ARankTenPercentLateIsFoundInFiveRuns) {
  for (int64_t ranks : {2, 4, 8, 16, 64}) {
    const Trial trial = {
        .ranks = ranks, .repetitions = 5, .delay = 0.1 * kStep};
    ExpectFound("placement 2 %", trial, {});
    if (ranks > 8) continue;
    ExpectFound("strongly correlated steps", trial, {.correlation = 0.8});
    ExpectFound("independent steps", trial,
                {.correlation = 0, .outlier_odds = 0});
  }
}

// At most 5 %, plus the sampling error of few trials (99.9 % of the binomial).
void ExpectNone(const std::string& name, const Trial& trial, const Noise& noise,
                int trials) {
  trials = TrialsOr(trials);
  EXPECT_LE(Try(name, trial, noise, trials).named,
            0.05 + 3.1 * std::sqrt(0.05 * 0.95 / trials));
}

TEST(StragglerTest, PlacementThatChangesFromRunToRunIsNone) {
  for (int64_t ranks : {2, 4, 16, 64}) {
    for (int repetitions : {2, 3, 5, 10}) {
      const Trial trial = {
          .ranks = ranks, .steps = 10, .repetitions = repetitions};
      if (ranks == 64 && repetitions % 5 != 0 && TrialsOr(0) == 0) continue;
      const int trials = std::max(40, static_cast<int>(400 / ranks));
      ExpectNone("placement 2 %", trial, {}, trials);
      ExpectNone("placement 5 %", trial, {.placement = 0.05}, trials);
    }
  }
}

// The rank's own variance is used if it is larger than the pooled one. A few
// runs estimate it badly, so the rate may slightly exceed 5 %.
TEST(StragglerTest, OneRankWhosePlacementVariesMoreIsRarelyOne) {
  for (int repetitions : {2, 3, 5, 10}) {
    const int trials = TrialsOr(60);
    const Trial trial = {.ranks = 8, .steps = 10, .repetitions = repetitions};
    EXPECT_LE(Try("rank 0's placement 3 times", trial, {.of_rank_0 = 3}, trials)
                  .named,
              0.08 + 3.1 * std::sqrt(0.08 * 0.92 / trials));
  }
}

// Within one run, a slow placement counts as a slow rank.
TEST(StragglerTest, OfOneRunItsBatchesAreTheSample) {
  Noise noise;
  noise.placement = 0;
  for (int64_t ranks : {2, 8}) {
    Trial trial = {.ranks = ranks, .steps = 100, .repetitions = 1};
    ExpectNone("one run", trial, noise, 100);
    trial.delay = 0.1 * kStep;
    ExpectFound("one run", trial, noise);
  }
  EXPECT_TRUE(Find(Machine({.placement = 0.05}, 3)
                       .Run({.ranks = 8, .steps = 100, .repetitions = 1})));
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
  EXPECT_EQ(found->runs, 1u);
  EXPECT_LE(found->least_seconds, found->seconds);
  EXPECT_GE(found->least_seconds, 0.9 * found->seconds);
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
