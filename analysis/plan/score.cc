#include "analysis/plan/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/plan/recorded_layout.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr double kNormal95 = 1.96;
// Of layouts, whose errors say more than what the fit leaves open.
constexpr size_t kFewestErrors = 3;

// A layout of several ranks that communicated, and what it was planned with.
struct PlannedCell {
  ScoredLayout scored;
  Setting setting;
};

bool IsScored(const Cell& cell) {
  return cell.run.world_size > 1 && !cell.IsAblation() &&
         !cell.repetitions.front().captured;
}

absl::StatusOr<Setting> SettingOf(const Cell& cell,
                                  absl::Span<const RunTrace> runs,
                                  const ScoreConfig& config) {
  Setting setting;
  ASSIGN_OR_RETURN(setting.model, ModelOf(cell.run));
  ASSIGN_OR_RETURN(setting.engine, OwnEngine(FlagOf(cell.run, "precision"),
                                             RanOnCpu(cell.run)));
  ASSIGN_OR_RETURN(
      setting.cluster,
      ClusterFromRecords(
          runs, {.ranks = cell.run.world_size,
                 .most_exchanging_ranks = config.fit_up_to,
                 .devices_per_node =
                     (cell.run.world_size + cell.hosts - 1) / cell.hosts,
                 .precision = FlagOf(cell.run, "precision"),
                 .throughput = config.throughput}));
  const std::string& measured = setting.cluster.network.backend;
  if (measured != cell.run.backend) {
    return absl::FailedPreconditionError(
        absl::StrCat("its backend is ", cell.run.backend,
                     ", and comm_bench measured ", measured));
  }
  return setting;
}

absl::StatusOr<PlannedCell> PlanCell(const Cell& cell,
                                     absl::Span<const RunTrace> runs,
                                     const ScoreConfig& config) {
  PlannedCell planned;
  ASSIGN_OR_RETURN(planned.setting, SettingOf(cell, runs, config));
  ScoredLayout& scored = planned.scored;
  ASSIGN_OR_RETURN(scored.layout, LayoutOf(cell.run, cell.global_batch));
  ASSIGN_OR_RETURN(StepModel steps, StepModel::Create(planned.setting));
  ASSIGN_OR_RETURN(scored.step, steps.Quick(scored.layout));
  if (!std::isfinite(scored.step.seconds))
    return absl::FailedPreconditionError("its communication was not measured");
  scored.model = planned.setting.model.name;
  scored.precision = FlagOf(cell.run, "precision");
  scored.hosts = cell.hosts;
  scored.measured_seconds = Median(cell.Values(&Throughput::step_seconds));
  if (cell.memory.has_value()) {
    scored.measured_bytes =
        static_cast<double>(TotalBytes(cell.memory->measured));
  }
  return planned;
}

std::vector<PlannedCell> PlanCells(absl::Span<const RunTrace> runs,
                                   const ScoreConfig& config,
                                   std::vector<std::string>* left_out) {
  std::vector<PlannedCell> planned;
  for (const Cell& cell : GroupIntoCells(runs, config.throughput, left_out)) {
    if (!IsScored(cell)) continue;
    absl::StatusOr<PlannedCell> one = PlanCell(cell, runs, config);
    if (one.ok()) {
      planned.push_back(*std::move(one));
    } else {
      left_out->push_back(
          absl::StrCat(cell.Name(), ": ", one.status().message()));
    }
  }
  return planned;
}

// The standard deviation about 0 of relative errors, of which 1.96 make
// Student's interval; none where they are too few.
std::optional<double> DeviationOf(const std::vector<double>& errors) {
  if (errors.size() < kFewestErrors) return std::nullopt;
  const auto count = static_cast<double>(errors.size());
  const double squares = absl::c_inner_product(errors, errors, 0.0);
  return StudentTwoSidedQuantile(0.05, count) / kNormal95 *
         std::sqrt(squares / count);
}

// Over the other cells of `precision` with as many ranks as `cell`, as what is
// left out of the model grows with the ranks that share cores and links; where
// these are too few, over all others; else `otherwise`. Without a cell, over
// all.
double DeviationFor(const PlannedCell* cell, const std::string& precision,
                    const std::vector<PlannedCell>& cells, int64_t fit_up_to,
                    double otherwise) {
  std::vector<double> all, alike;
  for (const PlannedCell& other : cells) {
    const int64_t ranks = other.scored.layout.ranks();
    if (&other == cell || other.scored.precision != precision ||
        (fit_up_to > 0 && ranks > fit_up_to))
      continue;
    all.push_back(other.scored.Error());
    if (cell != nullptr && ranks == cell->scored.layout.ranks())
      alike.push_back(other.scored.Error());
  }
  const std::optional<double> deviation = DeviationOf(alike);
  return deviation.has_value() ? *deviation
                               : DeviationOf(all).value_or(otherwise);
}

absl::Status AddInterval(double deviation, PlannedCell& cell) {
  cell.setting.cluster.deviation = deviation;
  ASSIGN_OR_RETURN(StepModel steps, StepModel::Create(cell.setting));
  ASSIGN_OR_RETURN(cell.scored.step, steps.Predict(cell.scored.layout));
  return absl::OkStatus();
}

// What the planner would choose among `layouts`, and what was best of those
// that fit into memory; none where nothing fits.
std::optional<Regret> RegretOf(const std::vector<const ScoredLayout*>& layouts,
                               double memory_bytes) {
  const double limit = memory_bytes == 0
                           ? std::numeric_limits<double>::infinity()
                           : memory_bytes;
  const ScoredLayout *choice = nullptr, *best = nullptr;
  for (const ScoredLayout* one : layouts) {
    if (one->step.memory.sum() <= limit &&
        (choice == nullptr || one->step.seconds < choice->step.seconds))
      choice = one;
    const bool known = one->measured_bytes > 0;
    if ((known ? one->measured_bytes : one->step.memory.sum()) <= limit &&
        (best == nullptr || one->measured_seconds < best->measured_seconds))
      best = one;
  }
  if (choice == nullptr || best == nullptr) return std::nullopt;
  return Regret{layouts.size(), *choice, *best};
}

std::vector<Regret> RegretsOf(const std::vector<ScoredLayout>& scored,
                              double memory_bytes) {
  std::map<std::tuple<std::string, std::string, int64_t, int64_t, int64_t>,
           std::vector<const ScoredLayout*>>
      groups;
  for (const ScoredLayout& one : scored) {
    const Layout& layout = one.layout;
    groups[{one.model, one.precision, layout.ranks(), one.hosts,
            layout.global_batch()}]
        .push_back(&one);
  }
  std::vector<Regret> regrets;
  for (const auto& [key, layouts] : groups) {
    if (layouts.size() < 2) continue;
    const auto regret = RegretOf(layouts, memory_bytes);
    if (regret.has_value()) regrets.push_back(*regret);
  }
  return regrets;
}

void Total(PlanScore& score) {
  std::vector<double> errors, widths, regrets;
  double covered = 0;
  for (const ScoredLayout& one : score.layouts) {
    const Interval& interval = one.step.interval;
    errors.push_back(std::abs(one.Error()));
    widths.push_back((interval.high - interval.low) / one.step.seconds);
    covered += one.IsCovered();
  }
  score.median_absolute_error = Median(errors);
  score.median_relative_width = Median(widths);
  score.coverage = covered / static_cast<double>(score.layouts.size());
  for (const Regret& one : score.regrets) regrets.push_back(one.Share());
  score.median_regret = regrets.empty()
                            ? std::numeric_limits<double>::quiet_NaN()
                            : Median(regrets);
}

std::string ModelText(const ScoredLayout& one) {
  return absl::StrCat(one.model, " ", one.precision);
}

std::string RanksText(const ScoredLayout& one) {
  const int64_t ranks = one.layout.ranks();
  return one.hosts > 1 ? absl::StrCat(ranks, " on ", one.hosts, " hosts")
                       : absl::StrCat(ranks);
}

std::string ErrorSentence(const PlanScore& score) {
  return absl::StrFormat(
      "Median error %s of %s. %s of them lie within their range; ranges "
      "are %s of the step wide at the median.",
      PercentText(score.median_absolute_error),
      Counted(static_cast<int64_t>(score.layouts.size()), "layout"),
      PercentText(score.coverage), PercentText(score.median_relative_width));
}

std::string RegretSentence(const PlanScore& score) {
  return absl::StrFormat(
      "Median regret %s of %s.", PercentText(score.median_regret),
      Counted(static_cast<int64_t>(score.regrets.size()), "choice"));
}

// Layouts and, if there are several of one size, choices among them begin
// alike.
void AddRow(const ScoredLayout& one, Table& table) {
  table.AddRow();
  table.Add("model", "model", Word(ModelText(one)), kLeft);
  table.Add("ranks", "ranks,hosts",
            {RanksText(one),
             {absl::StrCat(one.layout.ranks()), absl::StrCat(one.hosts)}},
            kLeft);
}

Figure ShortMilliseconds(double seconds) {
  return Number(seconds, MillisecondsText(seconds));
}

Table LayoutTable(const PlanScore& score) {
  Table table = {"plan-score-table",
                 "The planner's predictions of these layouts"};
  std::vector<double> memory;
  for (const ScoredLayout& one : score.layouts) {
    const bool known = one.measured_bytes > 0;
    const double off =
        known ? one.step.memory.sum() / one.measured_bytes - 1 : std::nan("");
    if (known) memory.push_back(std::abs(off));
    AddRow(one, table);
    table.Add("layout", "layout", Word(one.layout.FullName()), kLeft);
    table.Add("planned ms", "planned_seconds",
              ShortMilliseconds(one.step.seconds));
    table.Add("range", "planned_seconds_low,planned_seconds_high",
              Ends(one.step.interval, MillisecondsText));
    table.Add("measured ms", "measured_seconds",
              ShortMilliseconds(one.measured_seconds));
    table.Add("error", "error", SignedShare(one.Error()));
    table.Add("covered", "covered", Word(one.IsCovered() ? "yes" : "no"));
    table.Add("planned MB", "planned_bytes",
              Fixed(one.step.memory.sum(), 1, 1e-6));
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

Table RegretTable(const PlanScore& score) {
  Table table = {"plan-choice-table",
                 "The planner's first choice and the fastest measured"};
  for (const Regret& one : score.regrets) {
    AddRow(one.choice, table);
    table.Add("planner's first choice", "choice", Word(one.choice.Name()),
              kLeft);
    table.Add("fastest measured", "fastest", Word(one.best.Name()), kLeft);
    table.Add("batch", "global_batch", Whole(one.choice.layout.global_batch()));
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

absl::StatusOr<PlanScore> ScorePlans(absl::Span<const RunTrace> runs,
                                     const ScoreConfig& config) {
  RETURN_IF_ERROR(
      ClusterFromRecords(runs, {.most_exchanging_ranks = config.fit_up_to,
                                .throughput = config.throughput})
          .status());
  PlanScore score;
  std::vector<PlannedCell> cells = PlanCells(runs, config, &score.left_out);
  for (PlannedCell& cell : cells) {
    if (cell.scored.layout.ranks() <= config.fit_up_to) continue;
    RETURN_IF_ERROR(AddInterval(
        DeviationFor(&cell, cell.scored.precision, cells, config.fit_up_to,
                     /*otherwise=*/cell.setting.cluster.deviation),
        cell));
    score.layouts.push_back(cell.scored);
    if (score.short_cores.empty())
      score.short_cores = ShortCoresText(cell.setting.cluster);
  }
  if (score.layouts.empty()) {
    score.left_out.push_back(absl::StrCat(
        "no runs of several ranks that were not used to fit: record some",
        config.fit_up_to > 0 ? ", or lower --fit_up_to" : ""));
    return absl::FailedPreconditionError(absl::StrJoin(score.left_out, "; "));
  }
  score.regrets = RegretsOf(score.layouts, config.memory_bytes);
  Total(score);
  return score;
}

double RecordedDeviation(absl::Span<const RunTrace> runs,
                         const std::string& precision, const Cluster& cluster) {
  std::vector<std::string> left_out;
  const std::vector<PlannedCell> cells = PlanCells(runs, {}, &left_out);
  return DeviationFor(/*cell=*/nullptr, precision, cells, /*fit_up_to=*/0,
                      /*otherwise=*/cluster.deviation);
}

std::string PlanScoreSummary(const PlanScore& score) {
  return score.regrets.empty()
             ? ErrorSentence(score)
             : absl::StrCat(ErrorSentence(score), " ", RegretSentence(score));
}

std::vector<Table> PlanScoreTables(const PlanScore& score) {
  return {LayoutTable(score), RegretTable(score)};
}

std::string PlanScoreText(const PlanScore& score) {
  std::string text;
  for (const Table& table : PlanScoreTables(score)) {
    if (table.rows.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "\n", TableText(table),
                    table.notes);
  }
  absl::StrAppend(&text, score.short_cores);
  for (const std::string& reason : score.left_out)
    absl::StrAppend(&text, "Not scored: ", reason, ".\n");
  return text;
}

}  // namespace rankwise::plan
