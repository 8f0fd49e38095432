#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/history/history.h"
#include "analysis/runs/trace_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPoints = 12;
constexpr int kRepetitions = 3;

HistoryConfig Config() {
  HistoryConfig config;
  config.records.throughput.warmup_steps = 0;
  config.metrics = {"step_seconds"};
  return config;
}

struct Made {
  int point = 0;
  int repetition = 0;
  double step_seconds = 0.1;
  std::string lr = "0.1";
};

// Returns a run of ddp on the point-th day of 2026-03, of the point-th commit.
RunTrace MadeRun(const Made& made) {
  RunTrace run = MakeRun(
      {.world_size = 2,
       .step_seconds = made.step_seconds,
       .steps = 12,
       .run_id = absl::StrFormat("202603%02d-120000-%s%d", made.point + 1,
                                 made.lr, made.repetition)});
  run.source = absl::StrCat("run", made.point, "-", made.repetition);
  for (RankTrace& rank : run.ranks) {
    rank.run.source_hash = absl::StrCat("source", made.point);
    rank.run.git_commit = absl::StrFormat("%040d", made.point);
    rank.run.git_state = "clean";
    rank.run.flags["lr"] = made.lr;
    SetConfigHashes(&rank.run);
  }
  return run;
}

// Returns runs that are 10 % slower from the point `slower_from` on, with noise
// between points and between runs.
std::vector<RunTrace> Runs(int slower_from, std::mt19937_64& random,
                           const std::string& lr = "0.1") {
  std::normal_distribution<double> noise(0, 0.01);
  std::vector<RunTrace> runs;
  for (int point = 0; point < kPoints; ++point) {
    const double of_point = noise(random);
    for (int i = 0; i < kRepetitions; ++i) {
      const double level = point >= slower_from ? 0.11 : 0.1;
      runs.push_back(
          MadeRun({point, i, level * std::exp(of_point + noise(random)), lr}));
    }
  }
  return runs;
}

TEST(MakeHistoryTest, SaysWhatChangedAndWhen) {
  std::mt19937_64 random(1);
  const auto history = MakeHistory(Runs(7, random), Config());
  ASSERT_TRUE(history.ok()) << history.status();
  const std::string text = HistoryText(*history, Config());
  EXPECT_THAT(text, HasSubstr("History over 12 commits, 2026-03-01 to "
                              "2026-03-12 (36 runs)"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "ddp on 2 ranks, batch 64 +step_seconds +slower +"
                        "2026-03-08 +commit 000000000000 +99[.0-9]* ms +1[01]"
                        "[.0-9]* ms +1[.]1"));
  ASSERT_EQ(history->series.size(), 1u);
  ASSERT_EQ(history->series[0].changes.size(), 1u);
  EXPECT_TRUE(IsWorse(history->series[0], history->series[0].changes[0]));
  EXPECT_EQ(history->series[0].points[3].repetitions, 3u);
}

TEST(MakeHistoryTest, OrderOfTheRunsDoesNotCount) {
  std::mt19937_64 random(1);
  std::vector<RunTrace> runs = Runs(7, random);
  const std::string text = HistoryText(*MakeHistory(runs, Config()), Config());
  std::shuffle(runs.begin(), runs.end(), random);
  EXPECT_EQ(HistoryText(*MakeHistory(runs, Config()), Config()), text);
}

TEST(MakeHistoryTest, ByDayOrByCommit) {
  std::vector<RunTrace> runs = {MadeRun({0, 0}), MadeRun({0, 1}),
                                MadeRun({1, 0})};
  runs[1].ranks[0].run.source_hash = runs[1].ranks[1].run.source_hash = "b";
  HistoryConfig by_day = Config();
  by_day.by_day = true;
  const auto days = MakeHistory(runs, by_day),
             commits = MakeHistory(runs, Config());
  ASSERT_TRUE(days.ok() && commits.ok());
  EXPECT_EQ(days->points.size(), 2u);
  EXPECT_EQ(commits->points.size(), 3u);
  EXPECT_THAT(HistoryText(*days, by_day),
              HasSubstr("Note: 2026-03-01: ddp on 2 ranks, batch 64: its "
                        "repetitions ran different code"));
  EXPECT_THAT(HistoryText(*days, by_day),
              HasSubstr("No series has the 6 points that finding a change "
                        "needs"));
}

TEST(MakeHistoryTest, RunsOfUnknownSourcesAreKnownByCommitOrDay) {
  std::vector<RunTrace> runs = {MadeRun({0, 0}), MadeRun({1, 0}),
                                MadeRun({2, 0}), MadeRun({3, 0})};
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) {
      rank.run.source_hash = "";
      rank.run.git_commit = run.ranks[0].run.run_id < "20260303"
                                ? "1111111111111111111111111111111111111111"
                                : "";
    }
  }
  const auto history = MakeHistory(runs, Config());
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->points.size(), 3u) << "two of one commit, two days";
}

TEST(MakeHistoryTest, ConfigurationsAreSeriesOfTheirOwn) {
  std::mt19937_64 random(1);
  std::vector<RunTrace> runs = Runs(kPoints, random, "0.1");
  for (const RunTrace& run : Runs(5, random, "0.2")) runs.push_back(run);
  const auto history = MakeHistory(runs, Config());
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_EQ(history->series.size(), 2u);
  EXPECT_EQ(history->series[0].name, "ddp on 2 ranks, batch 64, --lr=0.1");
  EXPECT_EQ(history->series[0].changes.size(), 0u);
  EXPECT_EQ(history->series[1].changes.size(), 1u);
}

TEST(MakeHistoryTest, AChangeOfCpuIsReported) {
  std::mt19937_64 random(1);
  std::vector<RunTrace> runs = Runs(kPoints, random);
  for (RunTrace& run : runs) {
    const bool late = run.ranks[0].run.run_id >= "20260306";
    for (RankTrace& rank : run.ranks)
      rank.run.host.cpu_model = late ? "new CPU" : "old CPU";
  }
  const auto history = MakeHistory(runs, Config());
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_THAT(history->remarks,
              ElementsAre("ddp on 2 ranks, batch 64: the CPU changed from old "
                          "CPU to new CPU on 2026-03-06"));
}

TEST(MakeHistoryTest, RefusesDuplicateAndUndatedRuns) {
  const std::vector<RunTrace> twice = {MadeRun({0, 0}), MadeRun({0, 0})};
  EXPECT_THAT(std::string(MakeHistory(twice, Config()).status().message()),
              HasSubstr("name each folder once"));
  RunTrace undated = MadeRun({0, 0});
  undated.ranks[0].run.run_id = "mine";
  EXPECT_THAT(std::string(MakeHistory({undated}, Config()).status().message()),
              HasSubstr("the run id \"mine\" does not begin with the date"));
  EXPECT_THAT(std::string(MakeHistory({}, Config()).status().message()),
              HasSubstr("these records contain no series"));
}

TEST(MakeHistoryTest, Csv) {
  const std::vector<RunTrace> runs = {MadeRun({0, 0}), MadeRun({1, 0, 0.2})};
  EXPECT_EQ(HistoryCsv(*MakeHistory(runs, Config())),
            "configuration,metric,day,commit,repetitions,value,low,high,"
            "change_ratio,change_p\n"
            "\"ddp on 2 ranks, batch 64\",step_seconds,2026-03-01,commit "
            "000000000000,1,0.10000000000000001,,,,\n"
            "\"ddp on 2 ranks, batch 64\",step_seconds,2026-03-02,commit "
            "000000000000,1,0.20000000000000001,,,,\n");
}

// From records to changes: 20 configurations, one of which becomes 10 % slower
// in the middle.
TEST(MakeHistoryTest, FalseAndFoundChangesOverManySeries) {
  constexpr int kTrials = 60, kConfigurations = 20;
  std::mt19937_64 random(3);
  int alarms = 0, found = 0, in_place = 0, covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<RunTrace> runs;
    for (int i = 0; i < kConfigurations; ++i) {
      for (const RunTrace& run :
           Runs(i == 0 ? kPoints / 2 : kPoints, random, absl::StrCat(10 + i)))
        runs.push_back(run);
    }
    const auto history = MakeHistory(runs, Config());
    ASSERT_TRUE(history.ok()) << history.status();
    ASSERT_EQ(history->series.size(), kConfigurations);
    bool alarm = false;
    for (const HistorySeries& series : history->series) {
      if (series.name != "ddp on 2 ranks, batch 64, --lr=10") {
        alarm |= !series.changes.empty();
        continue;
      }
      found += !series.changes.empty();
      for (const LevelChange& change : series.changes) {
        in_place += change.at == kPoints / 2;
        covered += change.ratio.interval.low <= 1.1 &&
                   change.ratio.interval.high >= 1.1;
      }
    }
    alarms += alarm;
  }
  EXPECT_LE(alarms, 0.05 * kTrials + 2 * std::sqrt(0.05 * 0.95 * kTrials));
  EXPECT_GE(found, 0.8 * kTrials);
  EXPECT_GE(covered, 0.88 * found);
  RecordProperty("alarms", alarms);
  RecordProperty("found", found);
  RecordProperty("in_place", in_place);
  RecordProperty("covered", covered);
}

}  // namespace
}  // namespace rankwise
