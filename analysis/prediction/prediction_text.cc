#include "analysis/prediction/prediction_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/text_table.h"

namespace rankwise {
namespace {

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.3g", seconds * 1e3);
}

std::string MillisecondsInterval(const Interval& interval) {
  return absl::StrFormat("[%.3g, %.3g]", interval.low * 1e3,
                         interval.high * 1e3);
}

std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", 100 * share);
}

std::string Memory(double bytes) {
  return bytes == 0 ? "-" : absl::StrFormat("%.3g", bytes * 1e-6);
}

std::string Marked(const Prediction& prediction) {
  return absl::StrCat(prediction.layout.Name(),
                      prediction.extrapolated ? " *" : "");
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

}  // namespace

std::string PredictionTable(absl::Span<const PredictedRow> rows) {
  const bool with_efficiency =
      std::any_of(rows.begin(), rows.end(), [](const PredictedRow& row) {
        return row.one_rank_images_per_second > 0;
      });
  std::vector<std::string> header = {
      "layout",   "batch",        "step ms", "95 % interval",
      "images/s", "exposed comm", "bubble",  "memory MB"};
  if (with_efficiency) header.push_back("efficiency");
  TextTable table(std::move(header), /*left_columns=*/1);
  bool extrapolated = false;
  for (const PredictedRow& row : rows) {
    const Prediction& prediction = row.prediction;
    const double step = prediction.step_seconds;
    const double ideal = row.one_rank_images_per_second *
                         static_cast<double>(prediction.layout.world_size());
    extrapolated |= prediction.extrapolated;
    std::vector<std::string> cells = {
        Marked(prediction),
        absl::StrCat(prediction.layout.batch_per_rank),
        Milliseconds(step),
        MillisecondsInterval(prediction.step_interval),
        absl::StrFormat("%.0f", prediction.images_per_second),
        Percent(prediction.exposed_comm_seconds / step),
        Percent(prediction.bubble_seconds / step),
        Memory(prediction.peak_bytes)};
    if (with_efficiency) {
      cells.push_back(ideal > 0 ? Percent(prediction.images_per_second / ideal)
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
                  Milliseconds(point.prediction.step_seconds),
                  MillisecondsInterval(point.prediction.step_interval),
                  Milliseconds(point.measured_seconds),
                  absl::StrFormat("%+.1f %%", 100 * point.error),
                  point.covered ? "yes" : "no"});
  }
  std::string text = absl::StrFormat(
      "%s\nFitted up to %d ranks: median error %s, %s of %d points within "
      "their 95 %% interval.\n",
      table.ToString(), score.fitted_up_to,
      Percent(score.median_absolute_error), Percent(score.coverage),
      score.points.size());
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
