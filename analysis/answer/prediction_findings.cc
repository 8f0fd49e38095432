#include <cmath>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/prediction/prediction.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

// "95 % interval [90, 110]", "range, if launches alike: from 90 up".
std::string RateInterval(const Prediction& prediction) {
  if (std::isnan(prediction.examples_interval.low)) return "no interval";
  const std::string ends = RateEnds(prediction).text;
  return prediction.conditions.empty()
             ? absl::StrCat("95 % interval ", ends)
             : absl::StrCat(IntervalKind(prediction.conditions), ": ", ends);
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

// A fit to one rank has the communication of two, the smallest world size with
// any.
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

}  // namespace

Figure RateEnds(const Prediction& prediction) {
  const double low = prediction.unit.Rate(prediction.examples_interval.low);
  const double high = prediction.unit.Rate(prediction.examples_interval.high);
  const auto show = [](double rate) { return FixedText(rate, 0); };
  Figure ends = Ends({low, high}, show);
  if (std::isinf(high)) ends.text = absl::StrCat("from ", show(low), " up");
  return ends;
}

Finding WhatComesNext(const Answer& answer) {
  if (answer.predictions.empty()) return {};
  const Prediction& next = answer.predictions.front();
  std::string text = absl::StrFormat(
      "With a batch of %d per rank, ddp would train %.0f %s on %d ranks (%s).",
      next.layout.micro_batch, next.unit.Rate(next.examples_per_second),
      next.unit.RateName(), next.layout.ranks(), RateInterval(next));
  absl::StrAppend(&text, " ", LinkSentence(next));
  return {"What happens at the next size", text};
}

Finding HowFarToTrust(const Answer& answer) {
  std::string text = ResidualSentence(answer);
  for (const Score& score : answer.scores) {
    absl::StrAppend(&text, "\n", ScoreSentence(score));
  }
  return {"How far to trust this", text};
}

}  // namespace rankwise
