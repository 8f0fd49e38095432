// Recommends one of several layouts and scores predictions, both also as text.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
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

constexpr size_t kMostCandidates = 10;  // in a text

// "0.8 % of its step is exposed communication, 12 % idle in bubbles"
std::string Losses(const Prediction& prediction) {
  const double step = prediction.step_seconds;
  std::string text =
      absl::StrCat(PercentText(prediction.exposed_comm_seconds / step),
                   " of its step is exposed communication");
  if (prediction.layout.pp > 1) {
    absl::StrAppend(&text, " and ",
                    PercentText(prediction.bubble_seconds / step), " bubble");
  }
  return text;
}

// The fastest that spreads the model otherwise; else the second.
const Prediction* NextKind(const std::vector<Prediction>& candidates) {
  for (const Prediction& other : candidates) {
    if (other.layout.pp != candidates[0].layout.pp) return &other;
  }
  return candidates.size() > 1 ? &candidates[1] : nullptr;
}

// The fastest first; of those alike within 0.01 % the one that was there first:
// as it was recorded, or keeping fewer activations.
void SortByStep(std::vector<Prediction>* candidates) {
  double fastest = candidates->front().step_seconds;
  for (const Prediction& candidate : *candidates) {
    fastest = std::min(fastest, candidate.step_seconds);
  }
  const auto place = [fastest](const Prediction& candidate) {
    return std::llround(candidate.step_seconds / fastest * 1e4);
  };
  std::stable_sort(candidates->begin(), candidates->end(),
                   [&](const Prediction& a, const Prediction& b) {
                     return place(a) < place(b);
                   });
}

std::string Reason(const Recommendation& recommendation) {
  const Prediction& best = recommendation.candidates[0];
  std::string text =
      absl::StrFormat("%s is the fastest of %d: %s", best.layout.Name(),
                      recommendation.candidates.size(), Losses(best));
  if (const Prediction* next = NextKind(recommendation.candidates)) {
    absl::StrAppendFormat(
        &text, "; %s %s, %s slower, where %s",
        next->layout.pp != best.layout.pp ? "the best of another kind is"
                                          : "next comes",
        next->layout.Name(),
        PercentText(next->step_seconds / best.step_seconds - 1), Losses(*next));
    if (next->step_interval.low <= best.step_seconds) {
      absl::StrAppend(&text, ", which lies within what the records leave open");
    }
  }
  return absl::StrCat(text, ".");
}

// Empty, or why the prediction does not fit.
std::string OverTheLimit(const Prediction& prediction, double limit_bytes) {
  if (limit_bytes == 0) return "";
  if (prediction.peak_bytes == 0) {
    return "how much memory it takes was not recorded";
  }
  if (prediction.peak_bytes <= limit_bytes) return "";
  return absl::StrFormat("takes %.3g GB on its fullest rank, above %.3g GB",
                         prediction.peak_bytes * 1e-9, limit_bytes * 1e-9);
}

// Each assumption once, in order of its first use.
std::string Assumptions(absl::Span<const Prediction> predictions) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;
  for (const Prediction& prediction : predictions) {
    for (const auto* reasons :
         {&prediction.extrapolations, &prediction.assumptions}) {
      for (const std::string& line : *reasons) {
        auto found =
            absl::c_find_if(lines, [&](auto& l) { return l.first == line; });
        if (found == lines.end()) found = lines.insert(lines.end(), {line, {}});
        found->second.push_back(prediction.layout.Name());
      }
    }
  }
  std::string text = lines.empty() ? "" : "Assumed:\n";
  for (const auto& [line, layouts] : lines) {
    absl::StrAppend(&text, "  ",
                    layouts.size() == predictions.size() && layouts.size() > 1
                        ? "all"
                        : absl::StrJoin(layouts, "; "),
                    ": ", line, ".\n");
  }
  return text;
}

// Only ddp: a pipeline passes messages on even with --skip_communication, and
// its timelines are those of the size that is to be predicted.
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

// As Layout has them.
int64_t RanksPerHost(const Cell& cell) {
  return cell.hosts > 1 ? (cell.run.world_size + cell.hosts - 1) / cell.hosts
                        : 0;
}

// The layout in which a cell ran.
absl::StatusOr<Layout> LayoutOf(const Cell& cell,
                                absl::Span<const RunTrace> runs) {
  if (cell.run.binary == "ddp") {
    return Layout{.dp = cell.run.world_size,
                  .micro_batch = std::llround(cell.rank_batch),
                  .ranks_per_host = RanksPerHost(cell),
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
                   .ranks_per_host = RanksPerHost(cell)};
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
          : absl::StrFormat("%s of %d %s within their interval",
                            PercentText(score.coverage), judged,
                            judged == 1 ? "point lies" : "points lie");
  return absl::StrFormat("%s; intervals are %s of the step wide at the median.",
                         text, PercentText(score.median_relative_width));
}

}  // namespace

absl::StatusOr<Recommendation> Recommend(const Predictor& predictor,
                                         const RecommendConfig& config) {
  if (config.world_size < 1 || config.global_batch < 1 ||
      config.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError(
        "a recommendation needs a world size and a global batch of at least 1, "
        "and a memory limit of at least 0");
  }
  Recommendation result;
  for (Layout layout : predictor.Candidates(
           config.world_size, config.global_batch, &result.left_out)) {
    layout.ranks_per_host = config.hosts.ranks_per_host;
    layout.hierarchical = config.hosts.hierarchical && layout.pp == 1;
    absl::StatusOr<Prediction> prediction = predictor.Predict(layout);
    if (!prediction.ok()) {
      result.left_out.push_back(std::string(prediction.status().message()));
      continue;
    }
    const std::string over =
        OverTheLimit(*prediction, config.memory_limit_bytes);
    if (over.empty()) {
      result.candidates.push_back(*std::move(prediction));
    } else {
      result.left_out.push_back(absl::StrCat(layout.Name(), ": ", over));
    }
  }
  if (result.candidates.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no layout of ", config.world_size, " ranks with a global batch of ",
        config.global_batch, " fits: ", absl::StrJoin(result.left_out, "; ")));
  }
  SortByStep(&result.candidates);
  result.reason = Reason(result);
  return result;
}

std::string PredictionTable(absl::Span<const Prediction> predictions,
                            double one_rank_examples_per_second) {
  const bool with_efficiency = one_rank_examples_per_second > 0;
  // All of one work.
  const ExampleUnit unit =
      predictions.empty() ? ExampleUnit() : predictions[0].unit;
  std::vector<std::string> header = {
      "layout",        "batch",        "step ms", "interval",
      unit.RateName(), "exposed comm", "bubble",  "memory MB"};
  if (with_efficiency) header.push_back("efficiency");
  header.push_back("interval is");
  TextTable table(std::move(header), /*left_columns=*/1);
  bool extrapolated = false;
  for (const Prediction& prediction : predictions) {
    const double step = prediction.step_seconds;
    const double ideal = one_rank_examples_per_second *
                         static_cast<double>(prediction.layout.ranks());
    extrapolated |= prediction.extrapolated();
    std::vector<std::string> cells = {
        absl::StrCat(prediction.layout.Name(),
                     prediction.extrapolated() ? " *" : ""),
        absl::StrCat(prediction.layout.micro_batch),
        MillisecondsText(step),
        absl::StrFormat("[%s, %s]",
                        MillisecondsText(prediction.step_interval.low),
                        MillisecondsText(prediction.step_interval.high)),
        absl::StrFormat("%.0f", unit.Rate(prediction.examples_per_second)),
        PercentText(prediction.exposed_comm_seconds / step),
        PercentText(prediction.bubble_seconds / step),
        prediction.peak_bytes == 0
            ? "-"
            : absl::StrFormat("%.3g", prediction.peak_bytes * 1e-6)};
    if (with_efficiency) {
      cells.push_back(PercentText(prediction.examples_per_second / ideal));
    }
    cells.push_back(IntervalKind(prediction.conditions));
    table.AddRow(std::move(cells));
  }
  std::string links;
  for (const Prediction& prediction : predictions) {
    const std::string sentence = LinkSentence(prediction);
    if (!sentence.empty()) absl::StrAppend(&links, sentence, "\n");
  }
  return absl::StrCat(table.ToString(),
                      extrapolated ? "* beyond what was measured.\n" : "",
                      links, "\n", Assumptions(predictions));
}

std::string RecommendationText(const Recommendation& recommendation) {
  std::string text =
      absl::StrCat(recommendation.reason, "\n\n",
                   PredictionTable(absl::MakeSpan(recommendation.candidates)
                                       .subspan(0, kMostCandidates)));
  for (const std::string& reason : recommendation.left_out) {
    absl::StrAppend(&text, "Left out: ", reason, ".\n");
  }
  return text;
}

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
    if (cell.run.world_size <= fit_up_to || !IsPredictable(cell.run) ||
        cell.repetitions.front().captured || cell.IsAblation()) {
      continue;
    }
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
  TextTable table({"held out", "batch", "predicted ms", "interval",
                   "measured ms", "error", "covered", "interval is"},
                  /*left_columns=*/1);
  for (const ScoredPrediction& point : score.points) {
    table.AddRow(
        {point.prediction.layout.Name(),
         absl::StrCat(point.prediction.layout.micro_batch),
         MillisecondsText(point.prediction.step_seconds),
         absl::StrFormat("[%s, %s]",
                         MillisecondsText(point.prediction.step_interval.low),
                         MillisecondsText(point.prediction.step_interval.high)),
         MillisecondsText(point.measured_seconds),
         SignedPercentText(point.error), Covered(point),
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
