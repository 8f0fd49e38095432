// Error rates and power of the verdicts, from simulated records with a known
// truth to the printed line and the exit code. docs/compare.md lists the rates
// of
//   ./bazelw test //analysis/compare:error_rates_test
//   --test_env=TRIALS_TIMES=20 --test_timeout=3600 --test_output=all

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "analysis/compare/comparison.h"
#include "analysis/compare/record_set.h"
#include "analysis/runs/trace_for_test.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

using Random = std::mt19937_64;

double Normal(Random& random) {
  return std::normal_distribution<double>()(random);
}

double Student3(Random& random) {
  return std::student_t_distribution<double>(3)(random) / std::sqrt(3);
}

using Draw = double (*)(Random& random);  // with standard deviation 1

// Cells of ddp that differ only in their learning rate.
struct Scenario {
  Draw draw = Normal;
  double noise = 0.02;    // standard deviation of the logarithms
  double noise_of_b = 1;  // B's noise over A's
  int repetitions = 5;    // per side
  int cells = 10;
  double factor = 1;     // multiplies B's step times
  int slower_cells = 0;  // number of last cells with `factor`; 0 for all
  // If not 0, `factor` and noise apply to this exposed communication, and the
  // step takes exactly 0.1 s.
  double exposed_seconds = 0;
};

RecordSet MadeRecords(const std::string& side, const Scenario& scenario,
                      double noise, double factor, Random& random) {
  std::vector<RunTrace> runs;
  for (int cell = 0; cell < scenario.cells; ++cell) {
    const bool slower = scenario.slower_cells == 0 ||
                        cell >= scenario.cells - scenario.slower_cells;
    for (int i = 0; i < scenario.repetitions; ++i) {
      const double times =
          (slower ? factor : 1) * std::exp(noise * scenario.draw(random));
      const bool part = scenario.exposed_seconds > 0;
      RunTrace run = MakeRun({.step_seconds = part ? 0.1 : 0.1 * times,
                              .steps = kMinMeasuredSteps,
                              .run_id = absl::StrCat(side, cell, "-", i)});
      for (StepRecord& step : run.ranks[0].steps) {
        if (!part) continue;
        step.exposed_comm_seconds = scenario.exposed_seconds * times;
      }
      run.ranks[0].run.flags["lr"] = absl::StrCat(cell);
      SetConfigHashes(&run.ranks[0].run);
      runs.push_back(std::move(run));
    }
  }
  RecordSetConfig config;
  config.throughput.warmup_steps = 0;
  return MeasureRecordSet(runs, config);
}

// Shares of comparisons by exit code, and of figures by verdict.
struct Rates {
  std::map<int, double> codes;
  std::map<Verdict, double> verdicts;

  // The share of figures that pass a gate.
  double Passed() {
    return verdicts[Verdict::kEquivalent] + verdicts[Verdict::kNotWorse] +
           verdicts[Verdict::kBetter];
  }
};

// Multiplies `trials` by the environment variable TRIALS_TIMES.
int Trials(int trials) {
  int times = 1;
  const char* more = std::getenv("TRIALS_TIMES");
  return more != nullptr && absl::SimpleAtoi(more, &times) ? trials * times
                                                           : trials;
}

// Checks that the printed lines and the exit code agree.
void ExpectAgreement(const std::string& text, int code) {
  EXPECT_EQ(absl::StrContains(text, "\nWorse by more than "), code == 1);
  const bool inconclusive = absl::StrContains(text, "\nCannot say for ");
  EXPECT_TRUE(code == 1 || inconclusive == (code == 3));
  EXPECT_EQ(absl::StrContains(text, "\nEquivalent within ") ||
                absl::StrContains(text, "\nNot worse by more than "),
            code == 0);
}

Rates Simulate(const Scenario& scenario, const ChangeConfig& config,
               int trials) {
  Random random(1);
  Rates rates;
  for (int trial = 0; trial < trials; ++trial) {
    const RecordSet a = MadeRecords("a", scenario, scenario.noise, 1, random);
    const RecordSet b =
        MadeRecords("b", scenario, scenario.noise * scenario.noise_of_b,
                    scenario.factor, random);
    const auto comparison = CompareRecordSets(a, b, config);
    EXPECT_TRUE(comparison.ok()) << comparison.status();
    const int code = GateExitCode(*comparison, "");
    ExpectAgreement(ComparisonText(a, b, *comparison, config), code);
    rates.codes[code] += 1.0 / trials;
    const double figures = comparison->changes.size();
    for (const Change& change : comparison->changes) {
      rates.verdicts[change.verdict] += 1.0 / (trials * figures);
    }
  }
  return rates;
}

ChangeConfig StepSecondsWithin(double threshold) {
  ChangeConfig config;
  config.threshold = threshold;
  config.metrics = {"step_seconds"};
  return config;
}

// Returns `rate` plus three standard deviations of its estimate from `cases`
// cases.
double AtMost(double rate, int cases) {
  return rate + 3 * std::sqrt(rate * (1 - rate) / cases);
}

struct Repeated {
  const char* noise;
  Draw draw;
  int repetitions;
};

class ErrorRates : public testing::TestWithParam<Repeated> {
 protected:
  Scenario MakeScenario(double noise) const {
    return {.draw = GetParam().draw,
            .noise = noise,
            .repetitions = GetParam().repetitions};
  }

  void Print(const char* what, double rate) const {
    std::printf("%s, %d repetitions: %s %.2f %%\n", GetParam().noise,
                GetParam().repetitions, what, 100 * rate);
  }
};

// With a threshold of 0, only p decides: a larger threshold makes fewer errors.
TEST_P(ErrorRates, EqualCodeIsSeldomWorse) {
  const int trials = Trials(200);
  Scenario scenario = MakeScenario(0.1);
  scenario.cells = 4;
  const double worse =
      Simulate(scenario, StepSecondsWithin(0), trials).codes[1];
  Print("comparisons of equal code that find worse:", worse);
  EXPECT_LE(worse, AtMost(0.025, trials));
  if (GetParam().repetitions > 3) return;
  scenario.noise_of_b = 3;
  const double of_noisier =
      Simulate(scenario, StepSecondsWithin(0), trials).codes[1];
  Print("the same where B is 3 times as noisy:", of_noisier);
  EXPECT_LE(of_noisier, AtMost(0.025, trials));
}

TEST_P(ErrorRates, WhatIsAtTheThresholdSeldomPasses) {
  const int trials = Trials(40);
  Scenario scenario = MakeScenario(0.02);
  const double most = AtMost(0.025, trials * scenario.cells);
  scenario.factor = 1.05;
  Rates slower = Simulate(scenario, StepSecondsWithin(0.05), trials);
  Print("figures 5 % slower that pass:", slower.Passed());
  Print("figures 5 % slower that are worse:", slower.verdicts[Verdict::kWorse]);
  EXPECT_LE(slower.Passed(), most);
  EXPECT_LE(slower.verdicts[Verdict::kWorse], most);
  scenario.factor = 1 / 1.05;
  Rates faster = Simulate(scenario, StepSecondsWithin(0.05), trials);
  Print("figures 5 % faster that are equivalent:",
        faster.verdicts[Verdict::kEquivalent]);
  EXPECT_LE(faster.verdicts[Verdict::kEquivalent], most);
  EXPECT_LE(faster.verdicts[Verdict::kBetter], most);
}

// A slowdown of 1 % of the step. From 20 ms to 21 ms this equals the threshold;
// from 0.1 ms to 1.1 ms the spreads differ by a factor of 11, and two to five
// repetitions are too few for Welch's degrees of freedom to be exact.
TEST_P(ErrorRates, PartsOfTheStepAtTheirLimitSeldomPass) {
  ChangeConfig config;
  config.metrics = {"comm_wait_seconds"};
  const int trials = Trials(30);
  for (const auto& [seconds, most] :
       {std::pair(0.0001, 0.035), std::pair(0.002, 0.025),
        std::pair(0.02, 0.025)}) {
    Scenario scenario = MakeScenario(0.05);
    scenario.exposed_seconds = seconds;
    scenario.factor = (seconds + 0.001) / seconds;
    const double passed = Simulate(scenario, config, trials).Passed();
    Print(absl::StrCat("parts of ", 1e3 * seconds,
                       " ms that pass although 1 ms "
                       "slower:")
              .c_str(),
          passed);
    EXPECT_LE(passed, AtMost(most, trials * scenario.cells));
  }
}

INSTANTIATE_TEST_SUITE_P(Normal, ErrorRates,
                         testing::Values(Repeated{"normal", Normal, 2},
                                         Repeated{"normal", Normal, 3},
                                         Repeated{"normal", Normal, 5},
                                         Repeated{"normal", Normal, 10}));
INSTANTIATE_TEST_SUITE_P(Student3, ErrorRates,
                         testing::Values(Repeated{"Student 3", Student3, 2},
                                         Repeated{"Student 3", Student3, 3},
                                         Repeated{"Student 3", Student3, 5},
                                         Repeated{"Student 3", Student3, 10}));

// All metrics of a run: four figures per cell.
TEST(Power, ARegressionOf10PercentIsFound) {
  for (const int cells : {1, 10}) {
    Rates rates = Simulate({.cells = cells, .factor = 1.1, .slower_cells = 1},
                           {}, Trials(200));
    std::printf("1 of %d cells is 10 %% slower: found in %.1f %%\n", cells,
                100 * rates.codes[1]);
    EXPECT_GE(rates.codes[1], 0.8) << cells;
  }
}

// Within 5 %, by the step time of 10 cells.
TEST(Power, EqualCodePassesWithEnoughRepetitions) {
  std::map<std::pair<double, int>, double> passed;
  for (const double noise : {0.005, 0.01, 0.02, 0.03, 0.05}) {
    for (const int repetitions : {2, 3, 5, 10, 20}) {
      Rates rates = Simulate({.noise = noise, .repetitions = repetitions},
                             StepSecondsWithin(0.05), Trials(20));
      std::printf(
          "noise %g %%, %d repetitions: %.1f %% of the figures pass, %.1f %% "
          "are equivalent; %.1f %% of comparisons of 10 cells pass\n",
          100 * noise, repetitions, 100 * rates.Passed(),
          100 * rates.verdicts[Verdict::kEquivalent], 100 * rates.codes[0]);
      passed[{noise, repetitions}] = rates.Passed();
    }
  }
  EXPECT_GE((passed[{0.005, 3}]), 0.9);
  EXPECT_GE((passed[{0.01, 5}]), 0.95);
  EXPECT_GE((passed[{0.02, 10}]), 0.95);
  EXPECT_LE((passed[{0.05, 2}]), 0.1);
}

}  // namespace
}  // namespace rankwise
