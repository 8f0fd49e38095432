// From record files to the printed efficiency, for simulated jobs with a known
// efficiency: ranks that take turns in being late must not lower it.

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/answer/answer.h"
#include "analysis/runs/made_study_for_test.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

constexpr double kEfficiency = 0.8;
constexpr double kBias = 0.3;  // percentage points

std::vector<RunTrace> MakeRuns(const LateStudyConfig& config) {
  const std::string dir = testing::TempDir() + "/late_study";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directory(dir);
  const absl::Status made = WriteLateStudy(dir, config);
  EXPECT_TRUE(made.ok()) << made;
  auto runs = LoadRuns(dir);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? *std::move(runs) : std::vector<RunTrace>();
}

// The table's figures for ddp, in percent.
struct Printed {
  double efficiency = 0, low = 0, high = 0;
};

Printed PrintedEfficiency(const Answer& answer) {
  const std::regex row(R"(ddp +weak .* ([\d.]+) % +\[([\d.]+), ([\d.]+)\] .*)");
  const std::string text = AnswerText(answer);
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, row)) << text;
  if (match.empty()) return {};
  return {std::stod(match[1]), std::stod(match[2]), std::stod(match[3])};
}

// Returns the percentage points of efficiency lost to each cause.
std::map<LossCause, double> Losses(const Waterfall& waterfall) {
  std::map<LossCause, double> points;
  for (const Loss& loss : waterfall.losses) {
    points[loss.cause] = 100 * loss.efficiency_points;
  }
  return points;
}

void ExpectClosed(const Waterfall& waterfall) {
  double seconds = waterfall.ideal_seconds, points = 0;
  for (const Loss& loss : waterfall.losses) {
    seconds += loss.seconds;
    points += loss.efficiency_points;
  }
  EXPECT_NEAR(seconds, waterfall.measured_seconds, 1e-12);
  const auto efficiency =
      CompareToBase(*waterfall.base, *waterfall.cell, waterfall.scaling);
  ASSERT_TRUE(efficiency.ok()) << efficiency.status();
  EXPECT_NEAR(points, 1 - efficiency->efficiency, 1e-12);
}

TEST(LateRanks, TheTrueEfficiencyIsPrintedAndExplained) {
  std::cout << "ranks  lateness     true   reported    95 % interval  "
               "all-reduce  imbalance and noise   rest\n";
  for (int64_t ranks : {2, 16, 64}) {
    for (double lateness : {0.0, 0.03, 0.05}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, late by ", lateness));
      const auto answer =
          Analyze(MakeRuns({ranks, lateness, kEfficiency}), AnswerConfig());
      const Printed printed = PrintedEfficiency(*answer);
      ASSERT_EQ(answer->waterfalls.size(), 1u);
      auto losses = Losses(answer->waterfalls[0]);
      const double uneven =
          losses[LossCause::kImbalance] + losses[LossCause::kNoise];
      std::cout << absl::StrFormat(
          "%5d  %6.0f %%   %.1f %%     %.1f %%     [%.1f, %.1f]  %8.2f %%  "
          "%17.2f %%  %+.2f\n",
          ranks, 100 * lateness, 100 * kEfficiency, printed.efficiency,
          printed.low, printed.high, losses[LossCause::kExposedDp], uneven,
          losses[LossCause::kRest]);

      EXPECT_NEAR(printed.efficiency, 100 * kEfficiency, kBias);
      EXPECT_LE(printed.low, 100 * kEfficiency);
      EXPECT_GE(printed.high, 100 * kEfficiency);
      ExpectClosed(answer->waterfalls[0]);
      EXPECT_NEAR(losses[LossCause::kExposedDp], 100 * kLateStudyAllReduceShare,
                  kBias);
      // Nothing is unexplained, and no rank is slower than the others by more
      // than the random difference between means of so few steps.
      EXPECT_NEAR(losses[LossCause::kRest], 0, kBias);
      EXPECT_GT(losses[LossCause::kNoise], 0.7 * uneven);
      EXPECT_TRUE(answer->stragglers.empty());
    }
  }
}

}  // namespace
}  // namespace rankwise
