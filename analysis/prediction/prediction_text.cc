#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/prediction/prediction.h"
#include "analysis/text/text_table.h"

namespace rankwise {
namespace {

std::string MillisecondsInterval(const Interval& interval) {
  return absl::StrCat("[", MillisecondsText(interval.low), ", ",
                      MillisecondsText(interval.high), "]");
}

std::string Memory(double bytes) {
  return bytes == 0 ? "-" : absl::StrFormat("%.3g", bytes * 1e-6);
}

std::string Marked(const Prediction& prediction) {
  return absl::StrCat(prediction.layout.Name(),
                      prediction.extrapolated ? " *" : "");
}

std::string Covered(const ScoredPrediction& point) {
  if (!CountsForCoverage(point)) return "-";
  return point.covered ? "yes" : "no";
}

// Each assumption once, in order of its first use.
std::string Assumptions(absl::Span<const PredictedRow> rows) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;
  for (const PredictedRow& row : rows) {
    for (const std::string& line : row.prediction.assumptions) {
      auto found = std::find_if(lines.begin(), lines.end(),
                                [&](auto& l) { return l.first == line; });
      if (found == lines.end()) found = lines.insert(lines.end(), {line, {}});
      found->second.push_back(row.prediction.layout.Name());
    }
  }
  std::string text = lines.empty() ? "" : "Assumed:\n";
  for (const auto& [line, layouts] : lines) {
    absl::StrAppend(&text, "  ",
                    layouts.size() == rows.size() && rows.size() > 1
                        ? "all"
                        : absl::StrJoin(layouts, "; "),
                    ": ", line, ".\n");
  }
  return text;
}

// How often intervals were right, and how much that says.
std::string CoverageLine(const Score& score) {
  const int64_t judged = std::count_if(score.points.begin(), score.points.end(),
                                       CountsForCoverage);
  std::string text =
      std::isnan(score.coverage)
          ? absl::StrCat(
                "Coverage is not known: every point was fitted to "
                "fewer than ",
                kFewestRunsForCoverage, " runs")
          : absl::StrFormat("%s of %d %s within their 95 %% interval",
                            PercentText(score.coverage), judged,
                            judged == 1 ? "point lies" : "points lie");
  return absl::StrFormat("%s; intervals are %s of the step wide at the median.",
                         text, PercentText(score.median_relative_width));
}

}  // namespace

std::string PredictionTable(absl::Span<const PredictedRow> rows) {
  const bool with_efficiency =
      std::any_of(rows.begin(), rows.end(), [](const PredictedRow& row) {
        return row.one_rank_examples_per_second > 0;
      });
  // All of one work.
  const ExampleUnit unit =
      rows.empty() ? ExampleUnit() : rows[0].prediction.unit;
  std::vector<std::string> header = {
      "layout",        "batch",        "step ms", "95 % interval",
      unit.RateName(), "exposed comm", "bubble",  "memory MB"};
  if (with_efficiency) header.push_back("efficiency");
  TextTable table(std::move(header), /*left_columns=*/1);
  bool extrapolated = false;
  for (const PredictedRow& row : rows) {
    const Prediction& prediction = row.prediction;
    const double step = prediction.step_seconds;
    const double ideal = row.one_rank_examples_per_second *
                         static_cast<double>(prediction.layout.world_size());
    extrapolated |= prediction.extrapolated;
    std::vector<std::string> cells = {
        Marked(prediction),
        absl::StrCat(prediction.layout.batch_per_rank),
        MillisecondsText(step),
        MillisecondsInterval(prediction.step_interval),
        absl::StrFormat("%.0f", unit.Rate(prediction.examples_per_second)),
        PercentText(prediction.exposed_comm_seconds / step),
        PercentText(prediction.bubble_seconds / step),
        Memory(prediction.peak_bytes)};
    if (with_efficiency) {
      cells.push_back(ideal > 0
                          ? PercentText(prediction.examples_per_second / ideal)
                          : "-");
    }
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(table.ToString(),
                      extrapolated ? "* beyond what was measured.\n" : "", "\n",
                      Assumptions(rows));
}

std::string ScoreTable(const Score& score) {
  TextTable table({"held out", "batch", "predicted ms", "95 % interval",
                   "measured ms", "error", "covered"},
                  /*left_columns=*/1);
  for (const ScoredPrediction& point : score.points) {
    table.AddRow({point.prediction.layout.Name(),
                  absl::StrCat(point.prediction.layout.batch_per_rank),
                  MillisecondsText(point.prediction.step_seconds),
                  MillisecondsInterval(point.prediction.step_interval),
                  MillisecondsText(point.measured_seconds),
                  SignedPercentText(point.error), Covered(point)});
  }
  std::string text = absl::StrFormat(
      "%s\nFitted up to %d %s: median error %s of %d points. %s\n",
      table.ToString(), score.fitted_up_to,
      score.fitted_up_to == 1 ? "rank" : "ranks",
      PercentText(score.median_absolute_error), score.points.size(),
      CoverageLine(score));
  for (const std::string& reason : score.left_out) {
    absl::StrAppend(&text, "Not predicted: ", reason, ".\n");
  }
  return text;
}

std::string RecommendationText(const Recommendation& recommendation,
                               size_t most) {
  std::vector<PredictedRow> rows;
  for (const Prediction& candidate : recommendation.candidates) {
    if (rows.size() < most) rows.push_back({candidate});
  }
  std::string text =
      absl::StrCat(recommendation.reason, "\n\n", PredictionTable(rows));
  for (const std::string& reason : recommendation.left_out) {
    absl::StrAppend(&text, "Left out: ", reason, ".\n");
  }
  return text;
}

}  // namespace rankwise
