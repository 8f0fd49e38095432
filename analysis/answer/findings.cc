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
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

constexpr double kWorthSaying = 0.01;  // of the ideal speed
constexpr size_t kNamedCauses = 3;
constexpr size_t kToldLayouts = 3;  // of a way of scaling

// ", 95 % interval [55.1, 58.2]", or nothing where there is none.
std::string IntervalText(const Interval& interval) {
  if (std::isnan(interval.low)) return "";
  return absl::StrFormat(", 95 %% interval [%.1f, %.1f]", 100 * interval.low,
                         100 * interval.high);
}

std::string Milliseconds(double seconds) {
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

std::string HeldEqual(const Cell& cell, Scaling scaling) {
  if (scaling == Scaling::kStrong) {
    return absl::StrCat("the same global batch of ", cell.global_batch);
  }
  if (scaling == Scaling::kWeak) {
    return absl::StrCat("the same batch of ", BatchText(cell.rank_batch),
                        " per rank");
  }
  return absl::StrFormat("the same memory per rank (%.0f MB)",
                         cell.peak_bytes * 1e-6);
}

absl::string_view ScalingTitle(Scaling scaling) {
  if (scaling == Scaling::kFixedMemory) return "Fixed memory";
  return scaling == Scaling::kStrong ? "Strong scaling" : "Weak scaling";
}

absl::string_view ForcedMark(const ScalingRow& row) {
  return row.efficiency->warning.empty() ? "" : " (forced)";
}

std::string SpeedSentence(const ScalingRow& row, Scaling scaling) {
  const Cell& cell = *row.cell;
  const double ideal = static_cast<double>(cell.run.world_size) /
                       static_cast<double>(row.base->run.world_size);
  return absl::StrFormat(
      "%s: %s, with %s, trains %.2f times as fast as %s (ideal %.3g): %s "
      "efficiency%s%s.",
      ScalingTitle(scaling), cell.Name(), HeldEqual(cell, scaling),
      row.efficiency->speedup, row.base->Name(), ideal,
      PercentText(row.efficiency->efficiency),
      IntervalText(row.efficiency->efficiency_interval), ForcedMark(row));
}

std::string ScalingText(Scaling scaling) {
  return scaling == Scaling::kFixedMemory
             ? "with the same memory per rank"
             : absl::StrCat("under ", ScalingName(scaling), " scaling");
}

// How far the base and the cell are from the hardware: efficiency alone
// flatters a slow base. "" where their MFU, or a peak that both share, is not
// known: cells of one device share a measured peak (Cell::peak_tflops), but
// stated peaks may differ. Nor where one is above 100 %: that peak is wrong.
std::string HardwareSentence(const ScalingRow& row, Scaling scaling) {
  const double base = ModelFlopsUtilization(*row.base);
  const double cell = ModelFlopsUtilization(*row.cell);
  if (std::isnan(base) || std::isnan(cell) || std::max(base, cell) > 1 ||
      row.base->peak_tflops != row.cell->peak_tflops) {
    return "";
  }
  return absl::StrFormat(
      "Of what the hardware can do, by %s of every device, "
      "%s reaches %s (MFU), and %s, %s, reaches %s of all its devices.",
      PeakText(*row.cell), row.base->Name(), PercentText(base),
      row.cell->Name(), ScalingText(scaling), PercentText(cell));
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
    const std::string hardware = HardwareSentence(*row, scaling);
    if (!hardware.empty()) sentences.push_back(hardware);
  }
  for (const ScalingSeries& series : answer.series) {
    if (series.serial_trend.empty()) continue;
    sentences.push_back(absl::StrCat("The serial fraction of ", series.trainer,
                                     " (Karp and Flatt, strong scaling) ",
                                     series.serial_trend, "."));
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

// " [11.2, 12.8]": the interval of the absolute value in milliseconds; "" if
// the loss has no interval.
std::string IntervalText(const Loss& loss) {
  if (std::isnan(loss.interval.low)) return "";
  const Interval& interval = loss.interval;
  return loss.seconds < 0
             ? absl::StrFormat(" [%.3g, %.3g]", -1e3 * interval.high,
                               -1e3 * interval.low)
             : absl::StrFormat(" [%.3g, %.3g]", 1e3 * interval.low,
                               1e3 * interval.high);
}

// "19.2 points to exposed communication along dp (12 ms [11.2, 12.8] a step)"
std::string PointsText(const Loss& loss) {
  return absl::StrFormat(
      "%.1f points %s %s (%s%s a step)", 100 * std::abs(loss.efficiency_points),
      loss.efficiency_points < 0 ? "by" : "to", LossName(loss.cause),
      Milliseconds(std::abs(loss.seconds)), IntervalText(loss));
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
std::vector<const Waterfall*> WorthTelling(const Answer& answer) {
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
    if (counts[waterfall->scaling] == kToldLayouts ||
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
                     ranks, " ranks take ", Milliseconds(across->seconds),
                     " over ", cell.hosts, " hosts, ");
    // Every message crosses the link.
    if (ranks == cell.hosts) return cause + "each of which has one rank.";
    const auto within = network.Estimate("all_reduce", kBytes, ranks);
    if (!within.ok() || across->seconds < kSlower * within->seconds) continue;
    return absl::StrCat(cause, "and ", Milliseconds(within->seconds),
                        " within one.");
  }
  return "";
}

// Of the straggler that costs the largest share of its cell's step.
std::string StragglerSentence(const Answer& answer) {
  const auto worst = absl::c_max_element(
      answer.stragglers, [](const CellStraggler& a, const CellStraggler& b) {
        return a.straggler.share < b.straggler.share;
      });
  if (worst == answer.stragglers.end()) return "";
  const Straggler& straggler = worst->straggler;
  const bool once = straggler.runs == 1;
  return absl::StrFormat(
      "%s %d of %s, %s slower than the others by %s a step%s (95 %% "
      "confidence: at least %.3g ms), %s of the step%s.",
      once ? "In its only run, rank" : "Rank", straggler.rank,
      CellLabel(*worst->cell), once ? "was" : "is",
      Milliseconds(straggler.seconds),
      once ? "" : absl::StrCat(", the mean of ", straggler.runs, " runs"),
      1e3 * straggler.least_seconds, PercentText(straggler.share),
      once
          ? ": more --repetitions would show whether the rank is slow in every "
            "run or was only placed badly in this one"
          : "");
}

Finding WhatCostsMost(const Answer& answer) {
  std::string text;
  for (const Waterfall* waterfall : WorthTelling(answer)) {
    absl::StrAppend(&text, CostSentence(*waterfall),
                    LinkBetweenHosts(answer, *waterfall), "\n");
  }
  return {"What costs most", text + StragglerSentence(answer)};
}

// The remedy of each told waterfall's largest loss, once.
Finding WhatToChange(const Answer& answer) {
  std::vector<std::string> sentences;
  for (const Waterfall* waterfall : WorthTelling(answer)) {
    const std::vector<Loss> losses = LargestFirst(*waterfall);
    if (losses.empty() || losses[0].efficiency_points < kWorthSaying) continue;
    const std::string sentence = absl::StrCat(
        "Against ", LossName(losses[0].cause), ": ", Remedy(losses[0].cause));
    if (absl::c_linear_search(sentences, sentence)) continue;
    sentences.push_back(sentence);
  }
  return {"What to change", absl::StrJoin(sentences, "\n")};
}

std::string RateInterval(const Prediction& prediction) {
  const double low = prediction.unit.Rate(prediction.examples_interval.low);
  const double high = prediction.unit.Rate(prediction.examples_interval.high);
  if (std::isnan(low)) return "no interval";
  const std::string ends = std::isinf(high)
                               ? absl::StrFormat("from %.0f up", low)
                               : absl::StrFormat("[%.0f, %.0f]", low, high);
  return prediction.conditions.empty()
             ? absl::StrCat("95 % interval ", ends)
             : absl::StrCat(IntervalKind(prediction.conditions), ": ", ends);
}

// The predictions are of one trainer at rising world sizes.
Finding WhatComesNext(const Answer& answer) {
  if (answer.predictions.empty()) return {};
  std::vector<std::string> speeds, waits;
  std::string links;
  std::vector<std::string> extrapolations;
  for (const Prediction& prediction : answer.predictions) {
    speeds.push_back(absl::StrFormat(
        "%.0f %s on %d ranks (%s)",
        prediction.unit.Rate(prediction.examples_per_second),
        prediction.unit.RateName(), prediction.layout.world_size(),
        RateInterval(prediction)));
    waits.push_back(Milliseconds(prediction.exposed_comm_seconds));
    for (const std::string& line : prediction.extrapolations) {
      if (!absl::c_linear_search(extrapolations, line))
        extrapolations.push_back(line);
    }
    const std::string link = LinkSentence(prediction);
    if (!link.empty()) absl::StrAppend(&links, " ", link);
  }
  return {"What happens at the next size",
          absl::StrCat(
              "With a batch of ", answer.predictions[0].layout.batch_per_rank,
              " per rank, ddp would train ", Listed(speeds), "; of a step, ",
              Listed(waits),
              " would be communication that computing does not hide.", links,
              extrapolations.empty()
                  ? ""
                  : absl::StrCat(" Beyond what was measured: ",
                                 absl::StrJoin(extrapolations, "; "), "."))};
}

std::string ResidualSentence(const Answer& answer) {
  const auto worst = absl::c_max_element(
      answer.ledgers, [](const CellLedger& a, const CellLedger& b) {
        return a.ledger.median_residual_share < b.ledger.median_residual_share;
      });
  if (worst == answer.ledgers.end()) return "";
  return absl::StrCat("The ledger's parts explain all but ",
                      PercentText(worst->ledger.median_residual_share),
                      " of the step at worst (", worst->cell->Name(),
                      ", median over steps).");
}

// "3.2 ms less", "0.5 ms more"
std::string LessOrMore(double saved_seconds) {
  return absl::StrCat(Milliseconds(std::abs(saved_seconds)),
                      saved_seconds < 0 ? " more" : " less");
}

std::string AblationSentence(const Ablation& ablation) {
  const std::string saved =
      absl::StrCat("Without communication, ", CellLabel(*ablation.cell),
                   ", takes ", LessOrMore(ablation.saved_seconds), " a step");
  if (ablation.saved_seconds <= 0) {
    return saved +
           ": the machine was not the same for both, and the ledger is not "
           "tested.";
  }
  if (ablation.captured) {
    return saved +
           ". Its steps are captured graphs, whose parts the ledger cannot "
           "separate: this is all that is known of what communication costs "
           "there.";
  }
  return absl::StrCat(
      saved, ": by the ledger ",
      LessOrMore(ablation.exposed_seconds + ablation.bubble_seconds),
      " waiting and ", LessOrMore(ablation.slowed_seconds),
      " computing, which ",
      std::abs(ablation.disagreement) > 1
          ? "does not explain it."
          : absl::StrCat("explains it but for ",
                         PercentText(std::abs(ablation.disagreement)), "."));
}

// "; 80.0 % of them lay in their predicted interval, at the median 0.4 times as
// wide as the step is long".
std::string CoverageText(const Score& score) {
  if (std::isnan(score.coverage)) {
    return "; too few runs were fitted for intervals that could be judged";
  }
  return absl::StrFormat(
      "; %s of them lay in their predicted interval, at the median %.2g times "
      "as wide as the step is long",
      PercentText(score.coverage), score.median_relative_width);
}

// Calls among two ranks are the smallest there are to measure.
std::string ScoreSentence(const Score& score) {
  const std::string known =
      score.fitted_up_to == 1
          ? "1 rank, with communication as measured between 2 and computing "
            "next to another rank as measured without communication"
          : absl::StrCat("up to ", Counted(score.fitted_up_to, "rank"));
  return absl::StrFormat(
      "Predicted from %s, the steps of %s were off by %s at the median%s.",
      known, Counted(score.points.size(), "larger configuration"),
      PercentText(score.median_absolute_error), CoverageText(score));
}

Finding HowFarToTrust(const Answer& answer) {
  std::string text = ResidualSentence(answer);
  for (const Ablation& ablation : answer.ablations) {
    if (!ablation.cell->pipelines.empty()) continue;  // in the report's table
    absl::StrAppend(&text, "\n", AblationSentence(ablation));
  }
  for (const Score& score : answer.scores) {
    absl::StrAppend(&text, "\n", ScoreSentence(score));
  }
  return {"How far to trust this", text};
}

}  // namespace

std::string WaterfallName(const Waterfall& waterfall) {
  return absl::StrCat(
      waterfall.cell->Name(), ", ",
      waterfall.scaling == Scaling::kFixedMemory
          ? "fixed memory"
          : absl::StrCat(ScalingName(waterfall.scaling), " scaling"));
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
