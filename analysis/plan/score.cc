#include "analysis/plan/score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/plan/cluster.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/text_table.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr double kNormal95 = 1.96;
constexpr double kFlopsTolerance = 0.01;

absl::Status NotPlanned(const std::string& what) {
  return absl::FailedPreconditionError(what);
}

bool IsOn(const RunRecord& run, const char* flag) {
  return FlagOf(run, flag) == "true";
}

std::vector<RunTrace> RunsToFit(absl::Span<const RunTrace> runs,
                                int64_t fit_up_to) {
  std::vector<RunTrace> fit;
  for (const RunTrace& run : runs) {
    if (run.ranks.empty()) continue;
    const RunRecord& record = run.ranks[0].run;
    if (record.world_size <= fit_up_to && !SkipsCommunication(record))
      fit.push_back(run);
  }
  return fit;
}

// Ranks beyond a host's cores take turns on them.
void ShareCores(const RunRecord& run, int64_t fitted_ranks, Cluster& cluster) {
  const auto cores = static_cast<double>(std::max<int64_t>(1, run.host.cores));
  const auto threads = static_cast<double>(run.threads_per_rank);
  const auto turns = [&](int64_t ranks) {
    return std::max(1.0, threads * static_cast<double>(ranks) / cores);
  };
  const int64_t hosts = std::max<int64_t>(1, run.hosts);
  const int64_t ranks = (run.world_size + hosts - 1) / hosts;
  cluster.device.peak_flops *= turns(fitted_ranks) / turns(ranks);
  cluster.devices_per_node = ranks;
}

absl::StatusOr<ScoredLayout> PredictCell(const Cell& cell, Cluster cluster,
                                         int64_t fit_up_to) {
  ScoredLayout point;
  Setting setting;
  ASSIGN_OR_RETURN(setting.model, RecordedModel(cell.run));
  ASSIGN_OR_RETURN(point.layout, RecordedLayout(cell));
  ASSIGN_OR_RETURN(setting.engine, OwnEngine(FlagOf(cell.run, "precision")));
  ShareCores(cell.run, cluster.devices_per_node, cluster);
  setting.cluster = std::move(cluster);
  ASSIGN_OR_RETURN(StepModel steps, StepModel::Create(std::move(setting)));
  ASSIGN_OR_RETURN(point.step, steps.Predict(point.layout));
  point.measured_seconds = Median(cell.Values(&Throughput::step_seconds));
  point.fitted =
      cell.run.world_size <= fit_up_to && point.layout.is_data_parallel();
  if (cell.memory.has_value())
    point.measured_bytes =
        static_cast<double>(TotalBytes(cell.memory->measured));
  return point;
}

// The root mean square of what the fitted runs are off by, as wide as Student's
// t makes it for so few of them.
double DeviationOf(absl::Span<const double> errors) {
  double squares = 0;
  for (const double error : errors) squares += error * error;
  const auto freedom = static_cast<double>(errors.size() - 1);
  return std::sqrt(squares / freedom) * StudentTwoSidedQuantile(0.05, freedom) /
         kNormal95;
}

// Of every repetition of the cells that are fitted.
std::vector<double> FitErrors(absl::Span<const Cell> cells,
                              const Cluster& cluster, int64_t fit_up_to) {
  std::vector<double> errors;
  for (const Cell& cell : cells) {
    const auto point = PredictCell(cell, cluster, fit_up_to);
    if (!point.ok() || !point->fitted) continue;
    for (const double seconds : cell.Values(&Throughput::step_seconds))
      errors.push_back(point->step.seconds / seconds - 1);
  }
  return errors;
}

// Layouts that do the same work on as many ranks.
using Choice = std::pair<int64_t, int64_t>;  // ranks, examples of a step

std::map<Choice, std::vector<const ScoredLayout*>> Choices(
    const PlanScore& score) {
  std::map<Choice, std::vector<const ScoredLayout*>> choices;
  for (const ScoredLayout& point : score.points) {
    choices[{point.layout.ranks(), point.layout.global_batch()}].push_back(
        &point);
  }
  return choices;
}

std::string NameOf(const Layout& layout) {
  return absl::StrCat(MeshName(layout), ", ", DetailsOf(layout));
}

std::string HeldOutText(const PlanScore& score) {
  TextTable table({"held out", "predicted ms", "95 % interval", "measured ms",
                   "error", "covered"},
                  1);
  std::vector<double> errors;
  int covered = 0;
  for (const ScoredLayout& point : score.points) {
    if (point.fitted) continue;
    errors.push_back(std::abs(point.Error()));
    covered += point.IsCovered();
    table.AddRow(
        {NameOf(point.layout), MillisecondsText(point.step.seconds),
         absl::StrFormat("[%s, %s]", MillisecondsText(point.step.interval.low),
                         MillisecondsText(point.step.interval.high)),
         MillisecondsText(point.measured_seconds),
         SignedPercentText(point.Error()), point.IsCovered() ? "yes" : "no"});
  }
  return absl::StrFormat(
      "%s\nMedian error %s of %d layouts; %s of them lie within their 95 %% "
      "interval.\n",
      table.ToString(), PercentText(Median(errors)), errors.size(),
      PercentText(covered / static_cast<double>(errors.size())));
}

std::string RegretText(const PlanScore& score) {
  TextTable table(
      {"ranks", "examples", "layouts", "planned", "fastest", "regret"}, 0);
  std::vector<double> regrets;
  for (const auto& [choice, layouts] : Choices(score)) {
    if (layouts.size() < 2) continue;
    const auto* planned = *std::min_element(
        layouts.begin(), layouts.end(), [](const auto* a, const auto* b) {
          return a->step.seconds < b->step.seconds;
        });
    const auto* fastest = *std::min_element(
        layouts.begin(), layouts.end(), [](const auto* a, const auto* b) {
          return a->measured_seconds < b->measured_seconds;
        });
    regrets.push_back(planned->measured_seconds / fastest->measured_seconds -
                      1);
    table.AddRow({absl::StrCat(choice.first), absl::StrCat(choice.second),
                  absl::StrCat(layouts.size()), NameOf(planned->layout),
                  NameOf(fastest->layout), PercentText(regrets.back())});
  }
  if (regrets.empty()) return "";
  return absl::StrCat("\n", table.ToString(), "\nMedian regret ",
                      PercentText(Median(regrets)), ".\n");
}

std::string MemoryText(const PlanScore& score) {
  TextTable table({"memory", "planned MB", "measured MB", "error"}, 1);
  bool any = false;
  for (const ScoredLayout& point : score.points) {
    if (point.measured_bytes == 0) continue;
    any = true;
    const double planned = point.step.memory.sum();
    table.AddRow({NameOf(point.layout), absl::StrFormat("%.1f", 1e-6 * planned),
                  absl::StrFormat("%.1f", 1e-6 * point.measured_bytes),
                  SignedPercentText(planned / point.measured_bytes - 1)});
  }
  return any ? absl::StrCat("\n", table.ToString()) : "";
}

}  // namespace

absl::StatusOr<Model> RecordedModel(const RunRecord& run) {
  if (FlagOf(run, "model") != "gpt") return NotPlanned("only gpt is planned");
  std::string size = FlagOf(run, "model_size");
  ASSIGN_OR_RETURN(Model model, NamedModel(size.empty() ? "nano" : size));
  const auto take = [&](const char* flag, int64_t& number) {
    const double value = NumberFlagOf(run, flag, 0);
    if (value > 0) number = std::llround(value);
  };
  take("depth", model.blocks);
  take("width", model.width);
  take("sequence_length", model.sequence);
  model.tied_head = IsOn(run, "tied_head");
  const double recorded = run.forward_flops_per_example;
  if (std::abs(model.ForwardFlops() / recorded - 1) < kFlopsTolerance)
    return model;
  return NotPlanned(absl::StrFormat(
      "the record has %.3g FLOPs per example, the planner's model %.3g",
      recorded, model.ForwardFlops()));
}

absl::StatusOr<Layout> RecordedLayout(const Cell& cell) {
  const RunRecord& run = cell.run;
  if (run.mesh.empty() && run.world_size > 1)
    return NotPlanned("the record has no mesh");
  Layout layout = {.pp = AxisSize(run, "pp"),
                   .dp = AxisSize(run, "dp"),
                   .cp = AxisSize(run, "cp"),
                   .tp = AxisSize(run, "tp")};
  layout.zero = static_cast<int>(NumberFlagOf(run, "zero", 0));
  if (layout.pp > 1) layout.schedule = FlagOf(run, "schedule");
  layout.chunks = std::llround(NumberFlagOf(run, "chunks", 1));
  if (layout.schedule == "1f1b") layout.chunks = 1;
  layout.micro_batch = std::llround(NumberFlagOf(run, "batch_size", 1));
  layout.micro_batches =
      cell.global_batch / std::max<int64_t>(1, layout.micro_batch * layout.dp);
  if (IsOn(run, "recompute")) layout.recompute = Recompute::kFull;
  layout.sequence_parallel = layout.tp > 1 && IsOn(run, "sequence_parallel");
  if (layout.ranks() == run.world_size &&
      layout.global_batch() == cell.global_batch)
    return layout;
  return NotPlanned(absl::StrCat("its mesh and its batch do not make ",
                                 run.world_size, " ranks with ",
                                 cell.global_batch, " examples a step"));
}

bool ScoredLayout::IsCovered() const {
  return measured_seconds >= step.interval.low &&
         measured_seconds <= step.interval.high;
}

absl::StatusOr<PlanScore> ScorePlans(absl::Span<const RunTrace> runs,
                                     int64_t fit_up_to) {
  ASSIGN_OR_RETURN(Cluster cluster,
                   ClusterFromRecords(RunsToFit(runs, fit_up_to)));
  PlanScore score;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &score.left_out);
  const std::vector<double> errors = FitErrors(cells, cluster, fit_up_to);
  if (errors.size() > 1) cluster.deviation = DeviationOf(errors);
  bool held_out = false;
  for (const Cell& cell : cells) {
    if (cell.IsAblation()) continue;
    absl::StatusOr<ScoredLayout> point = PredictCell(cell, cluster, fit_up_to);
    if (!point.ok()) {
      score.left_out.push_back(
          absl::StrCat(cell.Name(), ": ", point.status().message()));
      continue;
    }
    held_out = held_out || !point->fitted;
    score.points.push_back(*std::move(point));
  }
  if (held_out) return score;
  score.left_out.insert(
      score.left_out.begin(),
      absl::StrCat(
          "no layout beyond the runs of single, ddp and fsdp of up to ",
          fit_up_to, " ranks to compare with"));
  return NotPlanned(absl::StrJoin(score.left_out, "; "));
}

std::string PlanScoreText(const PlanScore& score) {
  std::string text =
      absl::StrCat(HeldOutText(score), RegretText(score), MemoryText(score));
  for (const std::string& reason : score.left_out)
    absl::StrAppend(&text, "Not predicted: ", reason, ".\n");
  return text;
}

}  // namespace rankwise::plan
