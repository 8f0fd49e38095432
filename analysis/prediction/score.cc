#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/recordings.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

bool CanBePredicted(const Cell& cell) {
  const std::string& binary = cell.run.binary;
  return (binary == "ddp" || binary == "pipeline" ||
          binary == "model_parallel") &&
         !cell.repetitions.front().captured && !cell.IsAblation();
}

// A pipeline hands messages on even with --skip_communication, and its
// timelines are those of the size that is to be predicted.
bool ExchangesNothing(const RunTrace& run) {
  const RunRecord& record = run.ranks[0].run;
  return record.binary == "ddp" && SkipsCommunication(record);
}

std::vector<RunTrace> RunsToFit(absl::Span<const RunTrace> runs,
                                int64_t fit_up_to) {
  std::vector<RunTrace> fit;
  for (const RunTrace& run : runs) {
    if (run.ranks.empty()) continue;
    if (run.ranks[0].run.world_size <= fit_up_to || ExchangesNothing(run)) {
      fit.push_back(run);
    }
  }
  return fit;
}

ScoredPrediction Compare(Prediction prediction, const Cell& cell) {
  ScoredPrediction scored;
  scored.cell = &cell;
  scored.measured_seconds = Median(cell.Values(&Throughput::step_seconds));
  scored.error = prediction.step_seconds / scored.measured_seconds - 1;
  scored.covered = scored.measured_seconds >= prediction.step_interval.low &&
                   scored.measured_seconds <= prediction.step_interval.high;
  scored.prediction = std::move(prediction);
  return scored;
}

void Total(Score* score) {
  std::vector<double> errors, widths;
  double covered = 0, judged = 0;
  for (const ScoredPrediction& point : score->points) {
    errors.push_back(std::abs(point.error));
    const Interval& interval = point.prediction.step_interval;
    widths.push_back((interval.high - interval.low) /
                     point.prediction.step_seconds);
    if (!CountsForCoverage(point)) continue;
    covered += point.covered;
    judged += 1;
  }
  score->median_absolute_error = Median(errors);
  score->median_relative_width = Median(widths);
  score->coverage =
      judged > 0 ? covered / judged : std::numeric_limits<double>::quiet_NaN();
}

// The layout in which a cell ran.
absl::StatusOr<Layout> LayoutOf(const Cell& cell,
                                absl::Span<const RunTrace> runs) {
  Layout layout;
  if (cell.run.binary == "ddp") {
    layout.dp = cell.run.world_size;
    layout.batch_per_rank = std::llround(cell.rank_batch);
    return layout;
  }
  const size_t run =
      cell.run_indices.empty() ? runs.size() : cell.run_indices[0];
  if (run >= runs.size() || runs[run].ranks.empty() ||
      runs[run].ranks[0].schedules.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        cell.Name(), ": neither ddp nor a pipeline with schedule records"));
  }
  const ScheduleRecord& schedule = runs[run].ranks[0].schedules.back();
  layout.dp = schedule.replicas;
  layout.pp = schedule.pipeline_size;
  layout.micro_batches = schedule.micro_batches;
  layout.schedule = schedule.schedule;
  if (layout.dp < 1 || layout.micro_batches < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(cell.Name(), ": its schedule records name ", layout.dp,
                     " replicas and ", layout.micro_batches, " micro-batches"));
  }
  layout.batch_per_rank =
      cell.global_batch / (layout.dp * layout.micro_batches);
  if (layout.pp * layout.dp == cell.run.world_size && layout.pp > 1)
    return layout;
  return absl::FailedPreconditionError(absl::StrCat(
      cell.Name(), ": several stages in one process are not predicted"));
}

std::string Covered(const ScoredPrediction& point) {
  if (!CountsForCoverage(point)) return "-";
  return point.covered ? "yes" : "no";
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

bool CountsForCoverage(const ScoredPrediction& point) {
  return point.prediction.fitted_runs >= kFewestRunsForCoverage;
}

absl::StatusOr<Score> ScorePredictions(absl::Span<const RunTrace> runs,
                                       absl::Span<const Cell> cells,
                                       int64_t fit_up_to,
                                       const NetworkModel& network,
                                       const ThroughputConfig& config) {
  const std::vector<RunTrace> fit = RunsToFit(runs, fit_up_to);
  const absl::StatusOr<Predictor> predictor =
      Predictor::Create(fit, network, config);
  if (!predictor.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fitting up to ", fit_up_to, " ranks: ", predictor.status().message()));
  }
  Score score;
  score.fitted_up_to = fit_up_to;
  for (const Cell& cell : cells) {
    if (cell.run.world_size <= fit_up_to || !CanBePredicted(cell)) continue;
    const absl::StatusOr<Layout> layout = LayoutOf(cell, runs);
    absl::StatusOr<Prediction> prediction =
        layout.ok() ? predictor->Predict(*layout)
                    : absl::StatusOr<Prediction>(layout.status());
    if (prediction.ok()) {
      score.points.push_back(Compare(*std::move(prediction), cell));
    } else {
      score.left_out.push_back(
          absl::StrCat(cell.Name(), ": ", prediction.status().message()));
    }
  }
  if (!score.points.empty()) {
    Total(&score);
    return score;
  }
  return absl::FailedPreconditionError(
      score.left_out.empty()
          ? absl::StrCat("no runs of more than ", fit_up_to,
                         " ranks to compare predictions with; record some, or "
                         "fit up to fewer")
          : absl::StrJoin(score.left_out, "; "));
}

std::string ScoreTable(const Score& score) {
  TextTable table({"held out", "batch", "predicted ms", "95 % interval",
                   "measured ms", "error", "covered"},
                  /*left_columns=*/1);
  for (const ScoredPrediction& point : score.points) {
    table.AddRow(
        {point.prediction.layout.Name(),
         absl::StrCat(point.prediction.layout.batch_per_rank),
         MillisecondsText(point.prediction.step_seconds),
         absl::StrFormat("[%s, %s]",
                         MillisecondsText(point.prediction.step_interval.low),
                         MillisecondsText(point.prediction.step_interval.high)),
         MillisecondsText(point.measured_seconds),
         SignedPercentText(point.error), Covered(point)});
  }
  std::string text =
      absl::StrFormat("%s\nFitted up to %s: median error %s of %d points. %s\n",
                      table.ToString(), Counted(score.fitted_up_to, "rank"),
                      PercentText(score.median_absolute_error),
                      score.points.size(), CoverageLine(score));
  for (const std::string& reason : score.left_out) {
    absl::StrAppend(&text, "Not predicted: ", reason, ".\n");
  }
  return text;
}

}  // namespace rankwise
