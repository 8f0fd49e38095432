#include "parallel/pipeline/show_report.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/pipeline/drawing.h"
#include "parallel/pipeline/formulas.h"
#include "parallel/pipeline/schedule.h"

namespace rankwise {
namespace {

// Tables of more ranks are not read.
constexpr int kMostRanksInTable = 64;

int ChunksOf(const Schedule& schedule) {
  return std::max(1, schedule.num_stages() / schedule.num_ranks());
}

std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", 100 * share);
}

std::string Percent(const std::optional<double>& share) {
  return share ? Percent(*share) : "-";
}

std::string MicroBatches(double count) {
  return absl::StrFormat("%.4g", count);
}

std::string Title(const Schedule& schedule, const SimulationCosts& costs) {
  const StageCosts& stage = costs.stages[0];
  std::string title = absl::StrFormat(
      "%s: %d ranks, %d stages, %d micro-batches\n"
      "each stage: F %g s, B %g s = I %g s + W %g s",
      schedule.name, schedule.num_ranks(), schedule.num_stages(),
      schedule.num_micro_batches, stage.forward_seconds, stage.backward_seconds,
      stage.input_grad_seconds, stage.weight_grad_seconds);
  const double message_seconds =
      costs.link.alpha_seconds +
      stage.output_bytes * costs.link.beta_seconds_per_byte;
  absl::StrAppend(&title,
                  absl::StrFormat("; a message: %g s\n\n", message_seconds));
  return title;
}

// Simulated figures beside the formulas'.
std::string Figures(const Schedule& schedule, const SimulationCosts& costs,
                    const Bubbles& bubbles, const ScheduleFacts& facts) {
  const ScheduleShape shape = {schedule.num_ranks(), schedule.num_micro_batches,
                               ChunksOf(schedule)};
  const ScheduleFormulas formulas =
      FormulasOf(schedule.name, shape, costs.stages[0]);
  const double peak = 1.0 * shape.num_ranks / schedule.num_stages() *
                      *std::max_element(facts.peak_activations.begin(),
                                        facts.peak_activations.end());
  const auto row = [](absl::string_view what, absl::string_view simulated,
                      absl::string_view formula, absl::string_view text) {
    return absl::StrFormat("%-38s%10s%10s%s%s\n", what, simulated, formula,
                           text.empty() ? "" : "  ", text);
  };
  return absl::StrCat(
      row("", "simulated", "formula", "(messages take no time)"),
      row("time, first start to last end",
          absl::StrFormat("%.6g s", bubbles.wall_seconds), "", ""),
      row("bubble, wall clock", Percent(bubbles.wall),
          Percent(formulas.wall_bubble), formulas.wall_text),
      row("bubble, within each rank's own span", Percent(bubbles.span),
          Percent(formulas.span_bubble), ""),
      row("peak activations, in micro-batches", MicroBatches(peak),
          formulas.peak_activations ? MicroBatches(*formulas.peak_activations)
                                    : "-",
          "on the rank with most"));
}

std::string RankTable(const Schedule& schedule, const Bubbles& bubbles,
                      const ScheduleFacts& facts) {
  if (schedule.num_ranks() > kMostRanksInTable) return "";
  std::string table = absl::StrFormat("\n%-6s%10s%14s%14s%18s  %s\n", "rank",
                                      "busy s", "bubble, wall", "bubble, span",
                                      "peak activations", "stages");
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::string stages;
    const std::vector<int> own = schedule.StagesOf(rank);
    for (const int stage : own) absl::StrAppend(&stages, " ", stage);
    absl::StrAppend(
        &table,
        absl::StrFormat("%-6d%10.6g%14s%14s%18s %s\n", rank,
                        bubbles.busy_seconds[rank],
                        Percent(bubbles.wall_per_rank[rank]),
                        Percent(bubbles.span_per_rank[rank]),
                        MicroBatches(1.0 * facts.peak_activations[rank] /
                                     static_cast<double>(own.size())),
                        stages));
  }
  return table;
}

}  // namespace

std::string ShowReport(const Schedule& schedule, const SimulationCosts& costs,
                       const Timeline& timeline, const ScheduleFacts& facts,
                       int width) {
  const Bubbles bubbles = MeasureBubbles(timeline);
  std::string drawing = DrawTimeline(timeline, width);
  if (drawing.empty())
    drawing = absl::StrCat("(too large to be drawn in ", width,
                           " columns; --trace=FILE.json has it all)\n");
  return absl::StrCat(Title(schedule, costs), drawing, "\n",
                      Figures(schedule, costs, bubbles, facts),
                      RankTable(schedule, bubbles, facts));
}

}  // namespace rankwise
