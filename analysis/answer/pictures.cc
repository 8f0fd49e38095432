#include "analysis/answer/pictures.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// By step, the examples' mean over the ranks that report a loss.
LossCurve CurveOf(const Cell& cell, const RunTrace& run) {
  struct Sum {
    double loss = 0, examples = 0;
  };
  std::map<int64_t, Sum> sums;
  for (const RankTrace& rank : run.ranks) {
    for (const StepRecord& step : rank.steps) {
      const double examples = static_cast<double>(step.examples);
      sums[step.step].loss += step.loss * examples;
      sums[step.step].examples += examples;
    }
  }
  LossCurve curve;
  curve.name =
      absl::StrCat(cell.Name(), ", batch ", BatchText(cell.rank_batch));
  for (const auto& [step, sum] : sums) {
    if (sum.examples == 0) continue;
    curve.steps.push_back(step);
    curve.losses.push_back(sum.loss / sum.examples);
  }
  return curve;
}

// Of the first replica: the ranks below RanksPerReplica.
TimelinePicture PictureOf(const Cell& cell, const RunTrace& run) {
  TimelinePicture picture;
  picture.cell = &cell;
  const int64_t ranks = RanksPerReplica(run);
  for (const RankTrace& rank : run.ranks) {
    if (rank.run.rank >= ranks) continue;
    for (const TimelineRecord& timeline : rank.timelines) {
      (timeline.origin == "measured" ? picture.measured : picture.simulated)
          .push_back(timeline);
    }
  }
  return picture;
}

}  // namespace

std::vector<LossCurve> LossCurves(absl::Span<const Cell> cells,
                                  absl::Span<const RunTrace> runs) {
  std::vector<LossCurve> curves;
  for (const Cell& cell : cells) {
    if (cell.IsAblation()) continue;
    curves.push_back(CurveOf(cell, runs[cell.run_indices.front()]));
  }
  return curves;
}

std::vector<TimelinePicture> TimelinePictures(absl::Span<const Cell> cells,
                                              absl::Span<const RunTrace> runs) {
  std::vector<TimelinePicture> pictures;
  for (const Cell& cell : cells) {
    if (cell.IsAblation()) continue;
    for (auto index = cell.run_indices.rbegin();
         index != cell.run_indices.rend(); ++index) {
      TimelinePicture picture = PictureOf(cell, runs[*index]);
      if (picture.measured.empty()) continue;
      pictures.push_back(std::move(picture));
      break;
    }
  }
  return pictures;
}

}  // namespace rankwise
