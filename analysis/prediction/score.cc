#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/recordings.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

// Intervals from fewer runs are not meaningful.
constexpr int64_t kFewestRunsForCoverage = 3;

// True only for ddp: pipelines send messages even with --skip_communication,
// and their timelines would be those of the predicted size.
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

// Returns Layout::ranks_per_host.
int64_t LayoutRanksPerHost(const Cell& cell) {
  return cell.hosts > 1 ? RanksPerHost(cell) : 0;
}

// Returns the layout of a cell.
absl::StatusOr<Layout> LayoutOf(const Cell& cell,
                                absl::Span<const RunTrace> runs) {
  if (cell.run.binary == "ddp") {
    return Layout{.dp = cell.run.world_size,
                  .micro_batch = std::llround(cell.rank_batch),
                  .ranks_per_host = LayoutRanksPerHost(cell),
                  .hierarchical = IsHierarchical(cell.run)};
  }
  const RunTrace& run = runs[cell.run_indices[0]];
  if (run.ranks[0].schedules.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        cell.Name(), ": neither ddp nor a pipeline with schedule records"));
  }
  const ScheduleRecord& schedule = run.ranks[0].schedules.back();
  Layout layout = {.pp = schedule.pipeline_size,
                   .dp = schedule.replicas,
                   .schedule = schedule.schedule,
                   .micro_batches = schedule.micro_batches,
                   .ranks_per_host = LayoutRanksPerHost(cell)};
  if (layout.dp < 1 || layout.micro_batches < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(cell.Name(), ": its schedule records name ", layout.dp,
                     " replicas and ", layout.micro_batches, " micro-batches"));
  }
  layout.micro_batch = cell.global_batch / (layout.dp * layout.micro_batches);
  if (layout.pp * layout.dp != cell.run.world_size || layout.pp < 2) {
    return absl::FailedPreconditionError(absl::StrCat(
        cell.Name(), ": several stages in one process are not predicted"));
  }
  layout.chunks = schedule.stages / layout.pp;
  return layout;
}

ScoredPrediction Compare(Prediction prediction, const HeldOut& one) {
  const Cell& cell = *one.cell;
  ScoredPrediction scored{.cell = &cell,
                          .model = one.model,
                          .precision = one.precision,
                          .hosts = cell.hosts};
  scored.measured_seconds = Median(cell.Values(&Throughput::step_seconds));
  if (cell.memory.has_value()) {
    scored.measured_bytes =
        static_cast<double>(TotalBytes(cell.memory->measured));
  }
  scored.counts_for_coverage =
      prediction.fitted_runs.value_or(kFewestRunsForCoverage) >=
      kFewestRunsForCoverage;
  scored.prediction = std::move(prediction);
  return scored;
}

// Returns nullopt if none of the layouts fits.
std::optional<Regret> RegretOf(
    const std::vector<const ScoredPrediction*>& layouts, double memory_bytes) {
  const double limit = memory_bytes == 0
                           ? std::numeric_limits<double>::infinity()
                           : memory_bytes;
  const ScoredPrediction *choice = nullptr, *best = nullptr;
  for (const ScoredPrediction* one : layouts) {
    const double planned = one->prediction.peak_bytes;
    const double measured =
        one->measured_bytes > 0 ? one->measured_bytes : planned;
    if (planned <= limit &&
        (choice == nullptr ||
         one->prediction.step_seconds < choice->prediction.step_seconds))
      choice = one;
    if (measured <= limit &&
        (best == nullptr || one->measured_seconds < best->measured_seconds))
      best = one;
  }
  if (choice == nullptr || best == nullptr) return std::nullopt;
  return Regret{layouts.size(), *choice, *best};
}

// Computes the medians and the coverage from points and regrets. Requires at
// least one point.
void SumUp(Score& score) {
  std::vector<double> errors, widths, covered, regrets;
  for (const ScoredPrediction& point : score.points) {
    errors.push_back(std::abs(point.Error()));
    const Interval& interval = point.prediction.step_interval;
    widths.push_back((interval.high - interval.low) /
                     point.prediction.step_seconds);
    if (point.counts_for_coverage) covered.push_back(point.IsCovered() ? 1 : 0);
  }
  for (const Regret& regret : score.regrets) regrets.push_back(regret.Share());
  score.median_absolute_error = Median(errors);
  score.median_relative_width = Median(widths);
  score.coverage = Mean(covered);
  score.median_regret = Median(regrets);
}

// Computes the regrets described at ScoreHeldOut.
std::vector<Regret> RegretsOf(absl::Span<const ScoredPrediction> points,
                              double memory_bytes) {
  std::map<std::tuple<std::string, std::string, int64_t, int64_t, int64_t>,
           std::vector<const ScoredPrediction*>>
      groups;
  for (const ScoredPrediction& one : points) {
    const Layout& layout = one.prediction.layout;
    groups[{one.model, one.precision, layout.ranks(), one.hosts,
            layout.global_batch()}]
        .push_back(&one);
  }
  std::vector<Regret> regrets;
  for (const auto& [key, layouts] : groups) {
    if (layouts.size() < 2) continue;
    if (const auto regret = RegretOf(layouts, memory_bytes))
      regrets.push_back(*regret);
  }
  return regrets;
}

std::string Covered(const ScoredPrediction& point) {
  if (!point.counts_for_coverage) return "-";
  return point.IsCovered() ? "yes" : "no";
}

// Describes the coverage of the intervals, and their width.
std::string CoverageLine(const Score& score) {
  const int64_t judged = absl::c_count_if(
      score.points,
      [](const ScoredPrediction& point) { return point.counts_for_coverage; });
  std::string text =
      std::isnan(score.coverage)
          ? absl::StrCat(
                "Coverage is not known: every point was fitted to "
                "fewer than ",
                kFewestRunsForCoverage, " runs")
          : absl::StrFormat("%s of %d %s within their interval",
                            PercentText(score.coverage), judged,
                            judged == 1 ? "point lies" : "points lie");
  return absl::StrFormat("%s; intervals are %s of the step wide at the median.",
                         text, PercentText(score.median_relative_width));
}

}  // namespace

int64_t RanksPerHost(const Cell& cell) {
  return (cell.run.world_size + cell.hosts - 1) / cell.hosts;
}

bool IsHeldOut(const Cell& cell, int64_t fit_up_to) {
  return cell.run.world_size > fit_up_to && !cell.IsAblation() &&
         !cell.repetitions.front().captured;
}

Score ScoreHeldOut(absl::Span<const HeldOut> held_out, double memory_bytes) {
  Score score;
  for (const HeldOut& one : held_out) {
    absl::StatusOr<Prediction> prediction =
        one.layout.ok() ? one.predictor->Predict(*one.layout)
                        : absl::StatusOr<Prediction>(one.layout.status());
    if (prediction.ok()) {
      score.points.push_back(Compare(*std::move(prediction), one));
    } else {
      score.left_out.push_back(
          absl::StrCat(one.cell->Name(), ": ", prediction.status().message()));
    }
  }
  score.regrets = RegretsOf(score.points, memory_bytes);
  if (!score.points.empty()) SumUp(score);
  return score;
}

absl::StatusOr<Score> ScorePredictions(absl::Span<const RunTrace> runs,
                                       absl::Span<const Cell> cells,
                                       int64_t fit_up_to,
                                       const NetworkModel& network,
                                       const ThroughputConfig& config) {
  const std::vector<RunTrace> fit = RunsToFit(runs, fit_up_to);
  absl::StatusOr<RecordedPredictor> predictor =
      RecordedPredictor::Create(fit, network, config);
  if (!predictor.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fitting up to ", fit_up_to, " ranks: ", predictor.status().message()));
  }
  std::vector<HeldOut> held_out;
  for (const Cell& cell : cells) {
    if (IsHeldOut(cell, fit_up_to) && IsPredictable(cell.run))
      held_out.push_back({&cell, LayoutOf(cell, runs), &*predictor});
  }
  Score score = ScoreHeldOut(held_out, /*memory_bytes=*/0);
  score.fitted_up_to = fit_up_to;
  if (!score.points.empty()) return score;
  return absl::FailedPreconditionError(
      score.left_out.empty()
          ? absl::StrCat("no runs of more than ", fit_up_to,
                         " ranks to compare predictions with; record some, or "
                         "fit up to fewer")
          : absl::StrJoin(score.left_out, "; "));
}

std::string ScoreTable(const Score& score) {
  TextTable table({"held out", "batch", "predicted ms", "interval",
                   "measured ms", "error", "covered", "interval is"},
                  /*left_columns=*/1);
  for (const ScoredPrediction& point : score.points) {
    table.AddRow(
        {point.prediction.layout.Name(),
         absl::StrCat(point.prediction.layout.micro_batch),
         MillisecondsText(point.prediction.step_seconds),
         IntervalText(point.prediction.step_interval, MillisecondsText),
         MillisecondsText(point.measured_seconds),
         SignedPercentText(point.Error()), Covered(point),
         IntervalKind(point.prediction.conditions)});
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
