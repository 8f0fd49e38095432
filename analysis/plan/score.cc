#include "analysis/plan/score.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/recorded_machine.h"
#include "analysis/plan/step.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr double kNormal95 = 1.96;
// Minimum number of layouts whose errors replace the fit's uncertainty.
constexpr size_t kFewestErrors = 3;

// A layout of several communicating ranks, and the prediction of its steps.
struct PlannedCell {
  const Cell* cell;
  Layout layout;
  std::string precision;
  double error;  // of the predicted step, relative to the measured one
  StepModel model;
};

absl::StatusOr<Setting> SettingOf(const Cell& cell,
                                  const RecordedMachine& machine) {
  const std::string precision = FlagOf(cell.run, "precision");
  Setting setting;
  ASSIGN_OR_RETURN(setting.model, ModelOf(cell.run));
  ASSIGN_OR_RETURN(setting.engine, OwnEngine(precision, RanOnCpu(cell.run)));
  ASSIGN_OR_RETURN(setting.cluster,
                   machine.ClusterFor({.ranks = cell.run.world_size,
                                       .devices_per_node = RanksPerHost(cell),
                                       .precision = precision}));
  const std::string& measured = setting.cluster.network.backend;
  if (measured != cell.run.backend) {
    return absl::FailedPreconditionError(
        absl::StrCat("its backend is ", cell.run.backend,
                     ", and comm_bench measured ", measured));
  }
  return setting;
}

absl::StatusOr<PlannedCell> PlanCell(const Cell& cell,
                                     const RecordedMachine& machine) {
  ASSIGN_OR_RETURN(Setting setting, SettingOf(cell, machine));
  ASSIGN_OR_RETURN(const Layout layout, LayoutOf(cell.run, cell.global_batch));
  ASSIGN_OR_RETURN(StepModel model, StepModel::Create(std::move(setting)));
  ASSIGN_OR_RETURN(const Step step, model.Quick(layout));
  if (!std::isfinite(step.step_seconds))
    return absl::FailedPreconditionError("its communication was not measured");
  const double measured = Median(cell.Values(&Throughput::step_seconds));
  return PlannedCell{&cell, layout, FlagOf(cell.run, "precision"),
                     step.step_seconds / measured - 1, std::move(model)};
}

std::vector<PlannedCell> PlanCells(absl::Span<const Cell> cells,
                                   const RecordedMachine& machine,
                                   std::vector<std::string>* left_out) {
  std::vector<PlannedCell> planned;
  for (const Cell& cell : cells) {
    if (!IsHeldOut(cell, /*fit_up_to=*/1)) continue;
    absl::StatusOr<PlannedCell> one = PlanCell(cell, machine);
    if (one.ok()) {
      planned.push_back(*std::move(one));
    } else {
      left_out->push_back(
          absl::StrCat(cell.Name(), ": ", one.status().message()));
    }
  }
  return planned;
}

// Returns the standard deviation about 0 of relative errors whose 1.96-fold is
// Student's interval; nullopt if there are too few.
std::optional<double> DeviationOf(const std::vector<double>& errors) {
  if (errors.size() < kFewestErrors) return std::nullopt;
  const auto count = static_cast<double>(errors.size());
  const double squares = absl::c_inner_product(errors, errors, 0.0);
  return StudentTwoSidedQuantile(0.05, count) / kNormal95 *
         std::sqrt(squares / count);
}

// Uses the other cells of `precision` with as many ranks as `cell`, as the
// model's omissions grow with the ranks that share cores and links; if these
// are too few, all others; else `otherwise`. Without a cell, uses all.
double DeviationFor(const PlannedCell* cell, const std::string& precision,
                    const std::vector<PlannedCell>& cells, int64_t fit_up_to,
                    double otherwise) {
  std::vector<double> all, alike;
  for (const PlannedCell& other : cells) {
    const int64_t ranks = other.layout.ranks();
    if (&other == cell || other.precision != precision ||
        (fit_up_to > 0 && ranks > fit_up_to))
      continue;
    all.push_back(other.error);
    if (cell != nullptr && ranks == cell->layout.ranks())
      alike.push_back(other.error);
  }
  const std::optional<double> deviation = DeviationOf(alike);
  return deviation.has_value() ? *deviation
                               : DeviationOf(all).value_or(otherwise);
}

std::string ModelText(const ScoredPrediction& one) {
  return absl::StrCat(one.model, " ", one.precision);
}

std::string RanksText(const ScoredPrediction& one) {
  const int64_t ranks = one.prediction.layout.ranks();
  return one.hosts > 1 ? absl::StrCat(ranks, " on ", one.hosts, " hosts")
                       : absl::StrCat(ranks);
}

std::string ErrorSentence(const Score& score) {
  return absl::StrFormat(
      "Median error %s of %s. %s of them lie within their range; ranges "
      "are %s of the step wide at the median.",
      PercentText(score.median_absolute_error),
      Counted(static_cast<int64_t>(score.points.size()), "layout"),
      PercentText(score.coverage), PercentText(score.median_relative_width));
}

std::string RegretSentence(const Score& score) {
  return absl::StrFormat(
      "Median regret %s of %s.", PercentText(score.median_regret),
      Counted(static_cast<int64_t>(score.regrets.size()), "choice"));
}

// Starts a row with the columns common to the tables of layouts and of choices.
void AddRow(const ScoredPrediction& one, Table& table) {
  table.AddRow();
  table.Add("model", "model", Word(ModelText(one)), kLeft);
  table.Add(
      "ranks", "ranks,hosts",
      {RanksText(one),
       {absl::StrCat(one.prediction.layout.ranks()), absl::StrCat(one.hosts)}},
      kLeft);
}

Figure ShortMilliseconds(double seconds) {
  return Number(seconds, MillisecondsText(seconds));
}

Table LayoutTable(const Score& score) {
  Table table = {"plan-score-table",
                 "The planner's predictions of these layouts"};
  std::vector<double> memory;
  for (const ScoredPrediction& one : score.points) {
    const Prediction& planned = one.prediction;
    const bool known = one.measured_bytes > 0;
    const double off =
        known ? planned.peak_bytes / one.measured_bytes - 1 : std::nan("");
    if (known) memory.push_back(std::abs(off));
    AddRow(one, table);
    table.Add("layout", "layout", Word(planned.layout.FullName()), kLeft);
    table.Add("planned ms", "planned_seconds",
              ShortMilliseconds(planned.step_seconds));
    table.Add("range", "planned_seconds_low,planned_seconds_high",
              Ends(planned.step_interval, MillisecondsText));
    table.Add("measured ms", "measured_seconds",
              ShortMilliseconds(one.measured_seconds));
    table.Add("error", "error", SignedShare(one.Error()));
    table.Add("covered", "covered", Word(one.IsCovered() ? "yes" : "no"));
    table.Add("planned MB", "planned_bytes",
              Fixed(planned.peak_bytes, 1, 1e-6));
    table.Add("measured MB", "measured_bytes",
              Fixed(known ? one.measured_bytes : std::nan(""), 1, 1e-6));
    table.Add("error", "bytes_error", SignedShare(off));
  }
  table.notes = absl::StrCat("\n", ErrorSentence(score), "\n");
  if (!memory.empty()) {
    absl::StrAppendFormat(
        &table.notes, "Memory: median error %s, the largest %s.\n",
        PercentText(Median(memory)),
        PercentText(*std::max_element(memory.begin(), memory.end())));
  }
  return table;
}

Table RegretTable(const Score& score) {
  Table table = {"plan-choice-table",
                 "The planner's first choice and the fastest measured"};
  for (const Regret& one : score.regrets) {
    AddRow(one.choice, table);
    table.Add("planner's first choice", "choice",
              Word(one.choice.prediction.layout.FullName()), kLeft);
    table.Add("fastest measured", "fastest",
              Word(one.best.prediction.layout.FullName()), kLeft);
    table.Add("batch", "global_batch",
              Whole(one.choice.prediction.layout.global_batch()));
    table.Add("of", "layouts", Whole(static_cast<int64_t>(one.layouts)));
    table.Add("ms", "choice_seconds",
              ShortMilliseconds(one.choice.measured_seconds));
    table.Add("ms", "fastest_seconds",
              ShortMilliseconds(one.best.measured_seconds));
    table.Add("regret", "regret", Share(one.Share()));
  }
  table.notes = absl::StrCat("\n", RegretSentence(score), "\n");
  return table;
}

}  // namespace

absl::StatusOr<Score> ScorePlans(absl::Span<const RunTrace> runs,
                                 const ScoreConfig& config) {
  const RecordedMachine machine(runs,
                                {.most_exchanging_ranks = config.fit_up_to,
                                 .throughput = config.throughput});
  RETURN_IF_ERROR(machine.ClusterFor({}).status());
  std::vector<std::string> left_out;
  const std::vector<Cell> cells =
      GroupIntoCells(runs, config.throughput, &left_out);
  std::vector<PlannedCell> planned = PlanCells(cells, machine, &left_out);
  std::vector<HeldOut> held_out;
  std::string warning;
  for (PlannedCell& one : planned) {
    if (one.layout.ranks() <= config.fit_up_to) continue;
    const auto& [model, engine, cluster] = one.model.setting();
    if (warning.empty()) warning = ShortCoresText(cluster);
    one.model.set_deviation(DeviationFor(&one, one.precision, planned,
                                         config.fit_up_to,
                                         /*otherwise=*/cluster.deviation));
    held_out.push_back(
        {one.cell, one.layout, &one.model, model.name, one.precision});
  }
  Score score = ScoreHeldOut(held_out, config.memory_bytes);
  score.fitted_up_to = config.fit_up_to;
  score.left_out.insert(score.left_out.begin(), left_out.begin(),
                        left_out.end());
  if (score.points.empty()) {
    score.left_out.push_back(absl::StrCat(
        "no runs of several ranks that were not used to fit: record some",
        config.fit_up_to > 0 ? ", or lower --fit_up_to" : ""));
    return absl::FailedPreconditionError(absl::StrJoin(score.left_out, "; "));
  }
  for (ScoredPrediction& point : score.points) point.cell = nullptr;
  score.warning = std::move(warning);
  return score;
}

double RecordedDeviation(absl::Span<const RunTrace> runs,
                         const std::string& precision, const Cluster& cluster) {
  std::vector<std::string> left_out;
  const RecordedMachine machine(runs, {.most_exchanging_ranks = 0});
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  return DeviationFor(/*cell=*/nullptr, precision,
                      PlanCells(cells, machine, &left_out), /*fit_up_to=*/0,
                      /*otherwise=*/cluster.deviation);
}

std::vector<Table> PlanScoreTables(const Score& score) {
  return {LayoutTable(score), RegretTable(score)};
}

std::string PlanScoreText(const Score& score) {
  std::string text;
  for (const Table& table : PlanScoreTables(score)) {
    if (table.rows.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "\n", TableText(table),
                    table.notes);
  }
  absl::StrAppend(&text, score.warning);
  for (const std::string& reason : score.left_out)
    absl::StrAppend(&text, "Not scored: ", reason, ".\n");
  return text;
}

}  // namespace rankwise::plan
