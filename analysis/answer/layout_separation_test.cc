// Counts how often the printed comparison of layouts separates equal layouts,
// and how often it finds a slower one, for simulated studies, from records to
// the table and the sentence.
//
// To reproduce the table of docs/metrics.md, with 1000 studies per combination:
// ./bazelw test //analysis/answer:layout_separation_test --test_output=all
//     --test_timeout=3600 --test_env=RANKWISE_STUDIES=1000

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/runs/throughput.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/text/table.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr double kNoise = 0.02;  // deviation of the log of a run's step time
constexpr int kStudiesAtOnce = 4;

struct Layouts {
  int count = 2;
  int runs = 5;
  bool student = false;  // Student's t with 3 degrees of freedom, or normal
  bool noisy = false;    // one layout varies three times as much
  double slower = 0;     // relative slowdown of layout00
};

class Machine {
 public:
  explicit Machine(const Layouts& layouts)
      : layouts_(layouts), random_(layouts.count * 100 + layouts.runs) {}

  // Runs of several studies, which differ in their learning rates.
  std::vector<RunTrace> Studies() {
    std::vector<RunTrace> runs;
    for (int study = 0; study < kStudiesAtOnce; ++study) {
      for (int run = 0; run < layouts_.runs; ++run) {
        runs.push_back(Run("single", 1, 0.1, study));
        for (int i = 0; i < layouts_.count; ++i) {
          runs.push_back(
              Run(absl::StrFormat("layout%02d", i), 2, StepSeconds(i), study));
        }
      }
    }
    return runs;
  }

 private:
  double StepSeconds(int layout) {
    const bool is_noisy = layouts_.noisy && layout == layouts_.count / 2;
    const double noise = layouts_.student ? student_(random_) / std::sqrt(3.0)
                                          : normal_(random_);
    return 0.06 * (1 + (layout == 0 ? layouts_.slower : 0)) *
           std::exp(kNoise * (is_noisy ? 3 : 1) * noise);
  }

  RunTrace Run(const std::string& trainer, int64_t ranks, double seconds,
               int study) {
    RunTrace run = MakeRun({.binary = trainer,
                            .world_size = ranks,
                            .batch_size = 64 / ranks,
                            .step_seconds = seconds,
                            .steps = kMinMeasuredSteps});
    for (RankTrace& rank : run.ranks) {
      rank.run.flags["lr"] = absl::StrCat(study);
      SetConfigHashes(&rank.run);
    }
    return run;
  }

  const Layouts layouts_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::student_t_distribution<double> student_{3};
};

// The printed table of one study's layouts.
struct Printed {
  int rows = 0;
  int separated = 0;         // rows that are separated from the fastest
  bool finds_first = false;  // whether layout00 is among them
};

// Returns one Printed per study. Checks that interval, mark and sentence agree.
std::vector<Printed> ReadTable(const Answer& answer) {
  const std::regex row(
      R"((layout\d\d) .*\] +(fastest|[\d.]+ \[([\d.]+), [\d.]+\]( ~)?) .*)");
  std::vector<Printed> studies;
  const std::vector<std::string> lines =
      absl::StrSplit(TableText(LayoutTable(answer)), '\n');
  for (const std::string& line : lines) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    if (match[2] == "fastest") studies.emplace_back();
    ++studies.back().rows;
    if (match[2] == "fastest" || match[4].matched) continue;
    ++studies.back().separated;
    studies.back().finds_first |= match[1] == "layout00";
    EXPECT_GE(std::stod(match[3]), 1) << line;
  }
  EXPECT_EQ(studies.size(), answer.layouts.size());
  // The sentence says so if layouts were not separated from the fastest, and
  // then names none that were.
  for (const LayoutComparison& layouts : answer.layouts) {
    const auto is_separated = [](const LayoutRow& row) {
      return row.separated;
    };
    const int64_t slower = absl::c_count_if(layouts.rows, is_separated);
    const bool is_alone = slower + 1 == std::ssize(layouts.rows);
    EXPECT_NE(is_alone, absl::StrContains(layouts.advice, "within noise") ||
                            absl::StrContains(layouts.advice, "vary too much"))
        << layouts.advice;
    for (const LayoutRow& row : layouts.rows) {
      if (!row.separated || is_alone) continue;
      EXPECT_FALSE(absl::StrContains(layouts.advice, row.cell->Trainer()))
          << layouts.advice;
    }
  }
  return studies;
}

int StudiesFromEnvironment() {
  const char* studies = std::getenv("RANKWISE_STUDIES");
  if (studies == nullptr) return 0;
  return std::atoi(studies) / kStudiesAtOnce * kStudiesAtOnce;
}

// Numbers of studies that separate any layout, and that separate layout00.
struct Counts {
  double any = 0, first = 0;
};

Counts Count(const Layouts& layouts, int studies) {
  Counts counts;
  Machine machine(layouts);
  AnswerConfig config;
  config.throughput.warmup_steps = 0;
  config.bootstrap.resamples = 1;  // scaling laws are not tested here
  for (int done = 0; done < studies; done += kStudiesAtOnce) {
    const auto answer = Analyze(machine.Studies(), config);
    EXPECT_EQ(answer->layouts.size(), kStudiesAtOnce);
    for (const Printed& printed : ReadTable(*answer)) {
      EXPECT_EQ(printed.rows, layouts.count);
      counts.any += printed.separated > 0;
      counts.first += printed.finds_first;
    }
  }
  std::printf("%2d layouts, %2d runs, %s noise%s: ", layouts.count,
              layouts.runs, layouts.student ? "Student-3" : "normal",
              layouts.noisy ? ", one 3 times" : "");
  if (layouts.slower == 0) {
    std::printf("%.1f %% with a false separation\n",
                100 * counts.any / studies);
  } else {
    std::printf("the one %.0f %% slower found in %.1f %%\n",
                100 * layouts.slower, 100 * counts.first / studies);
  }
  return counts;
}

// At most 5 %, plus the sampling error of few studies (99.9 % of the binomial).
void ExpectFew(Layouts layouts, int studies) {
  const double expected = 0.05 * studies;
  EXPECT_LE(Count(layouts, studies).any,
            expected + 3.1 * std::sqrt(0.95 * expected));
}

TEST(LayoutSeparation, EqualLayoutsAreNotSeparated) {
  constexpr int kStudies = 152;
  ExpectFew({.count = 2, .runs = 5}, kStudies);
  ExpectFew({.count = 6, .runs = 3, .noisy = true}, kStudies);
  ExpectFew({.count = 12, .runs = 5, .student = true}, 60);
  ExpectFew({.count = 12, .runs = 10}, kStudies);  // 13 % by Holm's k - 1 tests
}

TEST(LayoutSeparation, OneThatIsTenPercentSlowerIsFound) {
  constexpr int kStudies = 60;
  EXPECT_GE(Count({.count = 12, .runs = 5, .slower = 0.1}, kStudies).first,
            0.8 * kStudies);
}

TEST(LayoutSeparation, EveryCombinationWhereRequested) {
  const int studies = StudiesFromEnvironment();
  if (studies == 0) GTEST_SKIP() << "RANKWISE_STUDIES is not set";
  for (bool student : {false, true}) {
    for (bool noisy : {false, true}) {
      for (int runs : {2, 3, 5, 10}) {
        for (int count : {2, 3, 6, 12}) {
          ExpectFew({count, runs, student, noisy}, studies);
          Count({count, runs, student, noisy, 0.1},
                studies / 4 / kStudiesAtOnce * kStudiesAtOnce);
        }
      }
    }
  }
}

TEST(LayoutSeparation, TheTableSaysWhatItsIntervalsAre) {
  AnswerConfig config;
  config.throughput.warmup_steps = 0;
  const auto answer = Analyze(Machine({.count = 3}).Studies(), config);
  EXPECT_THAT(AnswerText(*answer),
              HasSubstr("relative time with a 95 % interval that is "
                        "simultaneous over all pairs of layouts (~: not "
                        "separated from the fastest, as the interval contains "
                        "1)"));
}

}  // namespace
}  // namespace rankwise
