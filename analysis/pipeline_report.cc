#include "analysis/pipeline_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/number_text.h"
#include "analysis/pipeline_use.h"
#include "analysis/stats/statistics.h"
#include "analysis/text_table.h"

namespace rankwise {
namespace {

// More ranks than this are shown by their least and most idle one.
constexpr size_t kMostRanksShown = 4;

double MedianOf(const Cell& cell, double PipelineUse::*metric) {
  std::vector<double> values;
  for (const PipelineUse& use : cell.pipelines) values.push_back(use.*metric);
  return Median(values);
}

// "48.1 52.0", in order of the pipeline's ranks, replica after replica.
std::string ByRank(const Cell& cell, double PipelineRankUse::*metric,
                   double unit, const absl::ParsedFormat<'f'>& format) {
  std::vector<double> medians;
  for (size_t rank = 0; rank < cell.pipelines[0].ranks.size(); ++rank) {
    std::vector<double> values;
    for (const PipelineUse& use : cell.pipelines) {
      values.push_back(use.ranks[rank].*metric / unit);
    }
    medians.push_back(Median(values));
  }
  if (medians.size() > kMostRanksShown) {
    const auto [least, most] =
        std::minmax_element(medians.begin(), medians.end());
    return absl::StrCat(absl::StrFormat(format, *least), " to ",
                        absl::StrFormat(format, *most));
  }
  return absl::StrJoin(medians, " ", [&format](std::string* out, double value) {
    absl::StrAppend(out, absl::StrFormat(format, value));
  });
}

// "4 x 16": micro-batches a step, and their examples.
std::string MicroBatches(const Cell& cell) {
  const PipelineUse& use = cell.pipelines[0];
  const double examples = static_cast<double>(cell.global_batch) /
                          static_cast<double>(use.replicas * use.micro_batches);
  return absl::StrCat(use.micro_batches, " x ", BatchText(examples));
}

std::string Name(const Cell& cell) {
  return absl::StrCat(cell.Trainer(), cell.oversubscribed ? "*" : "");
}

std::vector<std::string> TimesOf(const Cell& cell) {
  const double seconds = MedianOf(cell, &PipelineUse::schedule_seconds);
  const double predicted = MedianOf(cell, &PipelineUse::predicted_seconds);
  const double error = predicted / seconds - 1;
  return {Name(cell),
          absl::StrCat(cell.run.world_size),
          MicroBatches(cell),
          PercentText(MedianOf(cell, &PipelineUse::wall_bubble)),
          PercentText(MedianOf(cell, &PipelineUse::predicted_wall_bubble)),
          PercentText(MedianOf(cell, &PipelineUse::span_bubble)),
          PercentText(MedianOf(cell, &PipelineUse::predicted_span_bubble)),
          MillisecondsColumn(seconds),
          MillisecondsColumn(predicted),
          SignedPercentText(error)};
}

std::vector<std::string> RanksOf(const Cell& cell) {
  const absl::ParsedFormat<'f'> percent("%.1f"), count("%.0f");
  return {Name(cell),
          absl::StrCat(cell.run.world_size),
          ByRank(cell, &PipelineRankUse::idle_share, 0.01, percent),
          ByRank(cell, &PipelineRankUse::wait_share, 0.01, percent),
          ByRank(cell, &PipelineRankUse::peak_activations, 1, count),
          MillisecondsColumn(
              MedianOf(cell, &PipelineUse::boundary_transfer_seconds)),
          absl::StrFormat("%.0f",
                          MedianOf(cell, &PipelineUse::boundary_bytes) / 1e3)};
}

}  // namespace

std::string PipelineTable(absl::Span<const Cell> cells) {
  TextTable times(
      {"pipeline", "ranks", "micro-batches", "wall bubble", "predicted",
       "span bubble", "predicted", "schedule ms", "predicted", "error"},
      /*left_columns=*/1);
  TextTable ranks({"pipeline", "ranks", "idle % by rank", "waiting % by rank",
                   "peak activations", "transfer ms", "transfer KB"},
                  /*left_columns=*/1);
  bool any = false;
  for (const Cell& cell : cells) {
    if (cell.pipelines.empty() || cell.IsAblation()) continue;
    any = true;
    times.AddRow(TimesOf(cell));
    ranks.AddRow(RanksOf(cell));
  }
  if (!any) return "";
  return absl::StrCat(
      "Pipelines: how long ranks compute nothing, of the slowest rank's time "
      "in the schedule (wall bubble), and between their first and last action "
      "(span bubble); beside each what simulating the schedule predicts.\n\n",
      times.ToString(),
      "\nTheir ranks: of each one's own time in the schedule. Transfers are "
      "per step and boundary between stages, peak activations of one stage and "
      "micro-batch each.\n\n",
      ranks.ToString(), "\n");
}

}  // namespace rankwise
