#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

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

constexpr double kWorthSaying = 0.01;  // of the ideal speed
constexpr size_t kNamedCauses = 3;
constexpr size_t kReportedLayouts = 3;  // of a way of scaling

// "12.3 ms"
std::string InMilliseconds(double seconds) {
  return absl::StrCat(MillisecondsText(seconds), " ms");
}

// Of the rows with an efficiency whose ScalingRow::scaling is `scaling`, the
// fastest of the largest world size; null without any.
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

// How far the cell and its base case are from the hardware's limit: efficiency
// alone flatters a slow base. "" where their MFU, or a peak that both share, is
// not known: cells of one device share a measured peak (Cell::peak_tflops), but
// stated peaks may differ. Nor where one is above 100 %: that peak is wrong.
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

// If no row with an efficiency is strong, weak or fixed-memory scaling: what
// was compared instead, and where the reasons for the refusals are. Empty if
// there are only base cases.
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

// "a", "a and b", "a, b and c"
std::string Listed(const std::vector<std::string>& items) {
  if (items.size() < 2) return absl::StrJoin(items, "");
  return absl::StrCat(
      absl::StrJoin(items.begin(), std::prev(items.end()), ", "), " and ",
      items.back());
}

// The losses beyond noise, largest first.
std::vector<Loss> LargestFirst(const Waterfall& waterfall) {
  std::vector<Loss> losses = waterfall.losses;
  std::erase_if(losses, [](const Loss& loss) { return loss.IsWithinNoise(); });
  absl::c_stable_sort(losses, [](const Loss& a, const Loss& b) {
    return a.efficiency_points > b.efficiency_points;
  });
  return losses;
}

// "19.2 points to exposed communication along dp (12 ms [11.2, 12.8] a step)".
// Gains are written as absolute values.
std::string PointsText(const Loss& loss) {
  const bool gained = loss.seconds < 0;
  const Interval& signed_ends = loss.interval;
  const Interval ends =
      gained ? Interval{-signed_ends.high, -signed_ends.low} : signed_ends;
  return absl::StrFormat(
      "%.1f points %s %s (%s%s a step)", 100 * std::abs(loss.efficiency_points),
      gained ? "by" : "to", LossName(loss.cause),
      InMilliseconds(std::abs(loss.seconds)),
      std::isnan(ends.low) ? "" : " " + IntervalText(ends, MillisecondsText));
}

std::string CostSentence(const Waterfall& waterfall) {
  std::vector<std::string> costs, gains;
  for (const Loss& loss : LargestFirst(waterfall)) {
    if (loss.efficiency_points >= kWorthSaying && costs.size() < kNamedCauses) {
      costs.push_back(PointsText(loss));
    } else if (loss.efficiency_points <= -kWorthSaying) {
      gains.push_back(PointsText(loss));
    }
  }
  return absl::StrCat(
      WaterfallName(waterfall), ": ",
      PercentText(waterfall.ideal_seconds / waterfall.measured_seconds),
      " of the ideal speed.",
      costs.empty() ? " No cause costs a point or more beyond noise."
                    : absl::StrCat(" It loses ", Listed(costs), "."),
      gains.empty() ? "" : absl::StrCat(" It gains ", Listed(gains), "."),
      waterfall.merged.empty()
          ? ""
          : " Not all causes could be separated: the notes say which.");
}

// Of the largest world size and each way of scaling, the nearest to the ideal:
// one of them a pipeline at most.
std::vector<const Waterfall*> WorthReporting(const Answer& answer) {
  int64_t largest = 0;
  for (const Waterfall& waterfall : answer.waterfalls) {
    largest = std::max(largest, waterfall.cell->run.world_size);
  }
  std::vector<const Waterfall*> nearest;
  for (const Waterfall& waterfall : answer.waterfalls) {
    if (waterfall.cell->run.world_size == largest) {
      nearest.push_back(&waterfall);
    }
  }
  absl::c_stable_sort(nearest, [](const Waterfall* a, const Waterfall* b) {
    return a->ideal_seconds / a->measured_seconds >
           b->ideal_seconds / b->measured_seconds;
  });
  std::vector<const Waterfall*> told;
  std::map<Scaling, size_t> counts, pipelines;
  for (const Waterfall* waterfall : nearest) {
    const bool is_pipeline = !waterfall->cell->pipelines.empty();
    if (counts[waterfall->scaling] == kReportedLayouts ||
        (is_pipeline && pipelines[waterfall->scaling]++ > 0)) {
      continue;
    }
    ++counts[waterfall->scaling];
    told.push_back(waterfall);
  }
  absl::c_stable_sort(told, [](const Waterfall* a, const Waterfall* b) {
    return a->scaling < b->scaling;
  });
  return told;
}

// Of a cell on several hosts that loses to waiting for gradients: what the link
// between them has to do with it. "" where it has nothing, or is not known.
std::string LinkBetweenHosts(const Answer& answer, const Waterfall& waterfall) {
  constexpr double kBytes = 4 << 20;
  constexpr double kSlower = 1.2;  // than within a host
  const Cell& cell = *waterfall.cell;
  const std::vector<Loss> losses = LargestFirst(waterfall);
  if (cell.hosts < 2 || losses.empty() ||
      losses[0].cause != LossCause::kExposedDp ||
      losses[0].efficiency_points < kWorthSaying) {
    return "";
  }
  const int64_t ranks = cell.run.world_size;
  for (const NetworkModel& network : answer.networks) {
    if (network.backend != cell.run.backend) continue;
    const auto across =
        network.Estimate("all_reduce", kBytes, ranks, cell.hosts);
    if (!across.ok()) continue;
    const std::string cause =
        absl::StrCat(" The link between hosts is the cause: 4 MiB among ",
                     ranks, " ranks take ", InMilliseconds(across->seconds),
                     " over ", cell.hosts, " hosts, ");
    // Every message crosses the link.
    if (ranks == cell.hosts) return cause + "each of which has one rank.";
    const auto within = network.Estimate("all_reduce", kBytes, ranks);
    if (!within.ok() || across->seconds < kSlower * within->seconds) continue;
    return absl::StrCat(cause, "and ", InMilliseconds(within->seconds),
                        " within one.");
  }
  return "";
}

// Of the straggler that costs the largest share of its cell's step, and, where
// its rank is slow in most of the layouts that are compared at one size, of
// those: no choice among them avoids it.
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

Finding WhatCostsMost(const Answer& answer) {
  std::string text;
  for (const Waterfall* waterfall : WorthReporting(answer)) {
    absl::StrAppend(&text, CostSentence(*waterfall),
                    LinkBetweenHosts(answer, *waterfall), "\n");
  }
  return {"What costs most", text + StragglerSentence(answer)};
}

// The remedy of each told waterfall's largest loss, once.
Finding WhatToChange(const Answer& answer) {
  std::vector<std::string> sentences;
  for (const Waterfall* waterfall : WorthReporting(answer)) {
    const std::vector<Loss> losses = LargestFirst(*waterfall);
    if (losses.empty() || losses[0].efficiency_points < kWorthSaying) continue;
    const std::string sentence = absl::StrCat(
        "Against ", LossName(losses[0].cause), ": ", Remedy(losses[0].cause));
    if (absl::c_linear_search(sentences, sentence)) continue;
    sentences.push_back(sentence);
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

std::string WaterfallName(const Waterfall& waterfall) {
  return absl::StrCat(waterfall.cell->Name(), ", ",
                      ScalingTitle(waterfall.scaling));
}

std::vector<Finding> FindingsOf(const Answer& answer) {
  std::vector<Finding> findings;
  for (Finding& finding :
       std::vector<Finding>{HowWellItScales(answer), WhichLayoutToUse(answer),
                            WhatCostsMost(answer), WhatToChange(answer),
                            WhatComesNext(answer), HowFarToTrust(answer)}) {
    absl::StripAsciiWhitespace(&finding.text);
    if (!finding.text.empty()) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace rankwise
