#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"

namespace rankwise {
namespace {

constexpr double kNotable = 0.01;      // share of the ideal speed
constexpr size_t kNotableLayouts = 3;  // per way of scaling

// "12.3 ms"
std::string InMilliseconds(double seconds) {
  return absl::StrCat(MillisecondsText(seconds), " ms");
}

// Returns the fastest row of the largest world size among those that have an
// efficiency and whose ScalingRow::scaling is `scaling`, or nullptr.
const ScalingRow* BestOfTheLargest(const Answer& answer,
                                   absl::string_view scaling) {
  const auto rank = [](const ScalingRow& row) {
    return std::make_pair(row.cell->run.world_size, row.efficiency->speedup);
  };
  const ScalingRow* best = nullptr;
  for (const ScalingRow& row : answer.rows) {
    if (row.scaling != scaling || !row.efficiency.ok()) continue;
    if (best == nullptr || rank(row) > rank(*best)) best = &row;
  }
  return best;
}

absl::string_view ForcedMark(const ScalingRow& row) {
  return row.efficiency->warning.empty() ? "" : " (forced)";
}

// The MFU of the cell and of its base case, as efficiency alone flatters a slow
// base. "" if an MFU is unknown, or above 100 % because the peak is wrong, or
// if the peaks differ: cells of one device share a measured peak
// (Cell::peak_tflops), but stated peaks may differ.
std::string MfuClause(const ScalingRow& row) {
  const double base = ModelFlopsUtilization(*row.base);
  const double cell = ModelFlopsUtilization(*row.cell);
  if (std::isnan(base) || std::isnan(cell) || std::max(base, cell) > 1 ||
      row.base->peak_tflops != row.cell->peak_tflops) {
    return "";
  }
  return absl::StrCat("; MFU ", PercentText(cell), ", its base case's ",
                      PercentText(base));
}

std::string SpeedSentence(const ScalingRow& row, Scaling scaling) {
  const Cell& cell = *row.cell;
  const double ideal = static_cast<double>(cell.run.world_size) /
                       static_cast<double>(row.base->run.world_size);
  std::string title = ScalingTitle(scaling);
  title[0] = absl::ascii_toupper(title[0]);
  return absl::StrFormat(
      "%s: %s, %s, trains %.2f times as fast as %s (ideal %.3g): %s "
      "efficiency%s%s%s.",
      title, cell.Name(), HeldEqual(cell, scaling), row.efficiency->speedup,
      row.base->Name(), ideal, PercentText(row.efficiency->efficiency),
      IntervalClause(row.efficiency->efficiency_interval, PercentDigits),
      ForcedMark(row), MfuClause(row));
}

// For answers without an efficiency under strong, weak or fixed-memory scaling:
// the comparison that was made instead, and where to find the reasons for
// refusals. "" if there are only base cases.
std::string WithoutScalingSentence(const Answer& answer) {
  const bool refused = absl::c_any_of(answer.rows, [](const ScalingRow& row) {
    return row.scaling != "base" && !row.efficiency.ok();
  });
  const ScalingRow* both = BestOfTheLargest(answer, "both");
  if (both == nullptr) {
    if (!refused) return "";
    return "No efficiency: nothing could be compared; the notes below say why.";
  }
  return absl::StrFormat(
      "%s trains %.2f times as fast as %s, with the same global batch and the "
      "same batch per rank%s. That says nothing about scaling: %s.",
      both->cell->Name(), both->efficiency->speedup, both->base->Name(),
      ForcedMark(*both),
      refused ? "the notes below say why the other runs were not compared"
              : "run on more ranks (--world_sizes)");
}

Finding HowWellItScales(const Answer& answer) {
  std::vector<std::string> sentences;
  for (Scaling scaling :
       {Scaling::kStrong, Scaling::kWeak, Scaling::kFixedMemory}) {
    const ScalingRow* row = BestOfTheLargest(answer, ScalingName(scaling));
    if (row == nullptr) continue;
    sentences.push_back(SpeedSentence(*row, scaling));
  }
  for (const ScalingSeries& series : answer.series) {
    if (series.serial_trend.empty()) continue;
    sentences.push_back(TrendSentence(series));
  }
  if (sentences.empty()) sentences.push_back(WithoutScalingSentence(answer));
  return {"How well it scales", absl::StrJoin(sentences, "\n")};
}

// Returns the largest notable loss, or nullptr. Ignores gains.
const Loss* LargestLoss(const Waterfall& waterfall) {
  const Loss* largest = nullptr;
  for (const Loss& loss : waterfall.losses) {
    const double points = largest == nullptr ? 0 : largest->efficiency_points;
    if (IsNotable(loss) && loss.efficiency_points > points) largest = &loss;
  }
  return largest;
}

// For a cell on several hosts whose largest loss is exposed communication along
// dp: a comparison of the link between hosts with a single host. "" if the link
// is not the cause, or was not measured.
std::string LinkBetweenHosts(const Answer& answer, const Waterfall& waterfall) {
  constexpr double kBytes = 4 << 20;
  constexpr double kSlower = 1.2;  // relative to within a host
  const Cell& cell = *waterfall.cell;
  const Loss* largest = LargestLoss(waterfall);
  if (cell.hosts < 2 || largest == nullptr ||
      largest->cause != LossCause::kExposedDp) {
    return "";
  }
  const int64_t ranks = cell.run.world_size;
  for (const NetworkModel& network : answer.networks) {
    if (network.backend != cell.run.backend) continue;
    const auto across =
        network.Estimate("all_reduce", kBytes, ranks, cell.hosts);
    if (!across.ok()) continue;
    const std::string cause =
        absl::StrCat("The link between hosts is the cause: 4 MiB among ", ranks,
                     " ranks take ", InMilliseconds(across->seconds), " over ",
                     cell.hosts, " hosts, ");
    // With one rank per host, every message crosses the link.
    if (ranks == cell.hosts) return cause + "each of which has one rank.";
    const auto within = network.Estimate("all_reduce", kBytes, ranks);
    if (!within.ok() || across->seconds < kSlower * within->seconds) continue;
    return absl::StrCat(cause, "and ", InMilliseconds(within->seconds),
                        " within one.");
  }
  return "";
}

// Describes the straggler that costs the largest share of its cell's step. If
// the same rank is slow in most layouts compared at one world size, adds that
// no choice of layout avoids it.
std::string StragglerSentence(const Answer& answer) {
  const auto worst = absl::c_max_element(
      answer.stragglers, [](const CellStraggler& a, const CellStraggler& b) {
        return a.straggler.share < b.straggler.share;
      });
  if (worst == answer.stragglers.end()) return "";
  const Straggler& straggler = worst->straggler;
  const bool once = straggler.runs == 1;
  std::string text = absl::StrFormat(
      "%s %d of %s, %s slower than the others by %s a step%s (95 %% "
      "confidence: at least %.3g ms), %s of the step%s.",
      once ? "In its only run, rank" : "Rank", straggler.rank,
      CellLabel(*worst->cell), once ? "was" : "is",
      InMilliseconds(straggler.seconds),
      once ? "" : absl::StrCat(", the mean of ", straggler.runs, " runs"),
      1e3 * straggler.least_seconds, PercentText(straggler.share),
      once
          ? ": more --repetitions would show whether the rank is slow in every "
            "run or was only placed badly in this one"
          : "");
  for (const LayoutComparison& layouts : answer.layouts) {
    std::vector<double> shares;
    for (const CellStraggler& slow : answer.stragglers) {
      const bool compared = absl::c_any_of(
          layouts.rows,
          [&slow](const LayoutRow& row) { return row.cell == slow.cell; });
      if (compared && slow.straggler.rank == straggler.rank)
        shares.push_back(slow.straggler.share);
    }
    if (shares.size() < 2 || 2 * shares.size() <= layouts.rows.size()) continue;
    absl::StrAppendFormat(
        &text,
        " It is slower in %d of the %d layouts of %d ranks, by %s of the step "
        "at the median: no layout avoids that.",
        shares.size(), layouts.rows.size(), layouts.world_size,
        PercentText(Median(shares)));
  }
  return text;
}

void AddOnce(const std::string& sentence, std::vector<std::string>& to) {
  if (sentence.empty() || absl::c_linear_search(to, sentence)) return;
  to.push_back(sentence);
}

// The table of losses has the other causes and layouts.
Finding WhatCostsMost(const Answer& answer) {
  std::vector<std::string> sentences;
  std::set<Scaling> seen;
  for (const Waterfall* waterfall : NotableWaterfalls(answer)) {
    const bool is_nearest = seen.insert(waterfall->scaling).second;
    const std::string name = WaterfallName(*waterfall);
    const Loss* largest = LargestLoss(*waterfall);
    if (largest == nullptr) {
      sentences.push_back(name +
                          ": no cause costs a point or more beyond noise.");
    } else if (is_nearest) {
      sentences.push_back(absl::StrFormat(
          "%s: %s of the ideal speed; largest loss: %s, %.1f points (%s a "
          "step).",
          name, PercentText(OfTheIdealSpeed(*waterfall)),
          LossName(largest->cause), 100 * largest->efficiency_points,
          InMilliseconds(largest->seconds)));
    }
    AddOnce(LinkBetweenHosts(answer, *waterfall), sentences);
  }
  AddOnce(StragglerSentence(answer), sentences);
  return {"What costs most", absl::StrJoin(sentences, "\n")};
}

// The remedies of the notable waterfalls' largest losses, each once.
Finding WhatToChange(const Answer& answer) {
  std::vector<std::string> sentences;
  for (const Waterfall* waterfall : NotableWaterfalls(answer)) {
    const Loss* largest = LargestLoss(*waterfall);
    if (largest == nullptr) continue;
    AddOnce(absl::StrCat("Against ", LossName(largest->cause), ": ",
                         Remedy(largest->cause)),
            sentences);
  }
  return {"What to change", absl::StrJoin(sentences, "\n")};
}

// The advice at the largest world size.
Finding WhichLayoutToUse(const Answer& answer) {
  int64_t largest = 0;
  for (const LayoutComparison& layouts : answer.layouts) {
    largest = std::max(largest, layouts.world_size);
  }
  std::vector<std::string> advice;
  for (const LayoutComparison& layouts : answer.layouts) {
    if (layouts.world_size == largest) advice.push_back(layouts.advice);
  }
  return {"Which layout to use", absl::StrJoin(advice, "\n")};
}

}  // namespace

std::string ScalingTitle(Scaling scaling) {
  if (scaling == Scaling::kFixedMemory) return "fixed memory";
  return absl::StrCat(ScalingName(scaling), " scaling");
}

std::string HeldEqual(const Cell& cell, Scaling scaling) {
  switch (scaling) {
    case Scaling::kStrong:
      return absl::StrCat("with the same global batch of ", cell.global_batch);
    case Scaling::kWeak:
      return absl::StrCat("with the same batch of ", BatchText(cell.rank_batch),
                          " per rank");
    case Scaling::kFixedMemory:
      break;
  }
  return absl::StrCat("with the same memory of ",
                      MegabytesText(cell.peak_bytes), " per rank");
}

std::string TrendSentence(const ScalingSeries& series) {
  return absl::StrCat("The serial fraction of ", series.trainer,
                      " (Karp and Flatt, strong scaling) ", series.serial_trend,
                      ".");
}

bool IsNotable(const Loss& loss) {
  return std::abs(loss.efficiency_points) >= kNotable && !loss.IsWithinNoise();
}

std::vector<const Waterfall*> NotableWaterfalls(const Answer& answer) {
  std::map<int64_t, std::vector<const Waterfall*>> by_ranks;
  for (const Waterfall& waterfall : answer.waterfalls) {
    by_ranks[waterfall.cell->run.world_size].push_back(&waterfall);
  }
  if (by_ranks.empty()) return {};
  std::vector<const Waterfall*>& nearest = by_ranks.rbegin()->second;
  absl::c_stable_sort(nearest, [](const Waterfall* a, const Waterfall* b) {
    return std::make_pair(a->scaling, -OfTheIdealSpeed(*a)) <
           std::make_pair(b->scaling, -OfTheIdealSpeed(*b));
  });
  std::vector<const Waterfall*> notable;
  std::map<Scaling, size_t> layouts, pipelines;
  for (const Waterfall* one : nearest) {
    const bool is_pipeline = !one->cell->pipelines.empty();
    if (layouts[one->scaling] == kNotableLayouts ||
        (is_pipeline && pipelines[one->scaling]++ > 0)) {
      continue;
    }
    ++layouts[one->scaling];
    notable.push_back(one);
  }
  return notable;
}

std::string WaterfallName(const Waterfall& waterfall) {
  return absl::StrCat(waterfall.cell->Name(), ", ",
                      ScalingTitle(waterfall.scaling));
}

std::vector<Finding> FindingsOf(const Answer& answer) {
  std::vector<Finding> findings;
  for (Finding& finding : std::vector<Finding>{
           HowWellItScales(answer), WhichLayoutToUse(answer),
           WhatCostsMost(answer), WhatToChange(answer), WhatComesNext(answer),
           HowFarToTrust(answer), TimeToLoss(answer), HowStale(answer)}) {
    absl::StripAsciiWhitespace(&finding.text);
    if (!finding.text.empty()) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace rankwise
