// How often a comparison of many configurations calls equal code changed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/compare/comparison.h"
#include "analysis/compare/record_set.h"
#include "analysis/runs/trace_for_test.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

constexpr int kCells = 10;
constexpr int kRepetitions = 5;
constexpr double kNoise = 0.03;

using Random = std::mt19937_64;

double Normal(Random& random) {
  return std::normal_distribution<double>()(random);
}

double Student3(Random& random) {
  return std::student_t_distribution<double>(3)(random) / std::sqrt(3);
}

struct Noise {
  const char* name;
  double (*draw)(Random& random);
};

// Cells of ddp that differ in their learning rate; the last takes
// `factor_of_last` times as long as the others.
RecordSet MadeRecords(const std::string& name, const Noise& noise,
                      double factor_of_last, Random& random) {
  std::vector<RunTrace> runs;
  for (int cell = 0; cell < kCells; ++cell) {
    const double factor = cell + 1 == kCells ? factor_of_last : 1;
    for (int i = 0; i < kRepetitions; ++i) {
      RunTrace run = MakeRun(
          {.step_seconds = 0.1 * factor * std::exp(kNoise * noise.draw(random)),
           .steps = kMinMeasuredSteps,
           .run_id = absl::StrCat(name, cell, "-", i)});
      run.ranks[0].run.flags["lr"] = absl::StrCat(cell);
      SetConfigHashes(&run.ranks[0].run);
      runs.push_back(std::move(run));
    }
  }
  RecordSetConfig config;
  config.throughput.warmup_steps = 0;
  return MeasureRecordSet(runs, config);
}

class FalseAlarms : public testing::TestWithParam<Noise> {};

TEST_P(FalseAlarms, AreAsRareOverAllFiguresAsAlphaSays) {
  constexpr int kTrials = 300;
  Random random(1);
  ChangeConfig config;
  config.threshold = 0;  // what counts is the p alone
  int alarms = 0, found = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const RecordSet a = MadeRecords("a", GetParam(), 1, random);
    const auto equal =
        CompareRecordSets(a, MadeRecords("b", GetParam(), 1, random), config);
    ASSERT_TRUE(equal.ok()) << equal.status();
    ASSERT_GE(equal->changes.size(), 2u * kCells);
    alarms += std::any_of(equal->changes.begin(), equal->changes.end(),
                          [](const Change& change) {
                            return change.verdict == Verdict::kWorse ||
                                   change.verdict == Verdict::kBetter;
                          });
    const auto slower =
        CompareRecordSets(a, MadeRecords("b", GetParam(), 1.2, random), config);
    found += slower->HasRegression();
  }
  // 5 %, and two standard deviations of a count.
  EXPECT_LE(alarms, 0.05 * kTrials + 2 * std::sqrt(0.05 * 0.95 * kTrials));
  EXPECT_GE(found, 0.9 * kTrials);
  RecordProperty("alarms", alarms);
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Noise, FalseAlarms,
                         testing::Values(Noise{"normal", Normal},
                                         Noise{"Student 3", Student3}));

}  // namespace
}  // namespace rankwise
