// Recommendation of layouts; predictions and recommendations as text.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/prediction/prediction.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

constexpr size_t kMostCandidates = 10;  // printed

// Returns "0.8 % of its step is exposed communication, 12 % idle in bubbles".
std::string Losses(const Prediction& prediction) {
  const double step = prediction.step_seconds;
  std::string text =
      absl::StrCat(PercentText(prediction.exposed_comm_seconds / step),
                   " of its step is exposed communication");
  if (prediction.layout.pp > 1) {
    absl::StrAppend(&text, " and ",
                    PercentText(prediction.bubble_seconds / step), " bubble");
  }
  return text;
}

// Returns the fastest candidate with another pp; else the second.
const Prediction* NextKind(const std::vector<Prediction>& candidates) {
  for (const Prediction& other : candidates) {
    if (other.layout.pp != candidates[0].layout.pp) return &other;
  }
  return candidates.size() > 1 ? &candidates[1] : nullptr;
}

// Sorts by step, fastest first. Among candidates within 0.01 %, the earliest
// stays first: the recorded one, or the one with fewer activations.
void SortByStep(std::vector<Prediction>* candidates) {
  double fastest = candidates->front().step_seconds;
  for (const Prediction& candidate : *candidates) {
    fastest = std::min(fastest, candidate.step_seconds);
  }
  const auto place = [fastest](const Prediction& candidate) {
    return std::llround(candidate.step_seconds / fastest * 1e4);
  };
  std::stable_sort(candidates->begin(), candidates->end(),
                   [&](const Prediction& a, const Prediction& b) {
                     return place(a) < place(b);
                   });
}

std::string Reason(const Recommendation& recommendation) {
  const Prediction& best = recommendation.candidates[0];
  std::string text =
      absl::StrFormat("%s is the fastest of %d: %s", best.layout.Name(),
                      recommendation.candidates.size(), Losses(best));
  if (const Prediction* next = NextKind(recommendation.candidates)) {
    absl::StrAppendFormat(
        &text, "; %s %s, %s slower, where %s",
        next->layout.pp != best.layout.pp ? "the best of another kind is"
                                          : "next comes",
        next->layout.Name(),
        PercentText(next->step_seconds / best.step_seconds - 1), Losses(*next));
    if (next->step_interval.low <= best.step_seconds) {
      absl::StrAppend(&text,
                      ", which is within the uncertainty of the predictions");
    }
  }
  return absl::StrCat(text, ".");
}

// Returns "", or why the prediction does not fit.
std::string OverTheLimit(const Prediction& prediction, double limit_bytes) {
  if (limit_bytes == 0) return "";
  if (prediction.peak_bytes == 0) {
    return "its memory was not recorded";
  }
  if (prediction.peak_bytes <= limit_bytes) return "";
  return absl::StrFormat("takes %.3g GB on its fullest rank, above %.3g GB",
                         prediction.peak_bytes * 1e-9, limit_bytes * 1e-9);
}

// Lists each assumption once, in order of first use.
std::string Assumptions(absl::Span<const Prediction> predictions) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;
  for (const Prediction& prediction : predictions) {
    for (const auto* reasons :
         {&prediction.extrapolations, &prediction.assumptions}) {
      for (const std::string& line : *reasons) {
        auto found =
            absl::c_find_if(lines, [&](auto& l) { return l.first == line; });
        if (found == lines.end()) found = lines.insert(lines.end(), {line, {}});
        found->second.push_back(prediction.layout.Name());
      }
    }
  }
  std::string text = lines.empty() ? "" : "Assumed:\n";
  for (const auto& [line, layouts] : lines) {
    absl::StrAppend(&text, "  ",
                    layouts.size() == predictions.size() && layouts.size() > 1
                        ? "all"
                        : absl::StrJoin(layouts, "; "),
                    ": ", line, ".\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<Recommendation> Recommend(RecordedPredictor& predictor,
                                         const RecommendConfig& config) {
  if (config.world_size < 1 || config.global_batch < 1 ||
      config.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError(
        "a recommendation needs a world size and a global batch of at least 1, "
        "and a memory limit of at least 0");
  }
  Recommendation result;
  for (Layout layout : predictor.Candidates(
           config.world_size, config.global_batch, &result.left_out)) {
    layout.ranks_per_host = config.hosts.ranks_per_host;
    layout.hierarchical = config.hosts.hierarchical && layout.pp == 1;
    absl::StatusOr<Prediction> prediction = predictor.Predict(layout);
    if (!prediction.ok()) {
      result.left_out.push_back(std::string(prediction.status().message()));
      continue;
    }
    const std::string over =
        OverTheLimit(*prediction, config.memory_limit_bytes);
    if (over.empty()) {
      result.candidates.push_back(*std::move(prediction));
    } else {
      result.left_out.push_back(absl::StrCat(layout.Name(), ": ", over));
    }
  }
  if (result.candidates.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no layout of ", config.world_size, " ranks with a global batch of ",
        config.global_batch, " fits: ", absl::StrJoin(result.left_out, "; ")));
  }
  SortByStep(&result.candidates);
  result.reason = Reason(result);
  return result;
}

std::string PredictionTable(absl::Span<const Prediction> predictions,
                            double one_rank_examples_per_second) {
  const bool with_efficiency = one_rank_examples_per_second > 0;
  // All predictions are of the same work.
  const ExampleUnit unit =
      predictions.empty() ? ExampleUnit() : predictions[0].unit;
  std::vector<std::string> header = {
      "layout",        "batch",        "step ms", "interval",
      unit.RateName(), "exposed comm", "bubble",  "memory MB"};
  if (with_efficiency) header.push_back("efficiency");
  header.push_back("interval is");
  TextTable table(std::move(header), /*left_columns=*/1);
  bool extrapolated = false;
  for (const Prediction& prediction : predictions) {
    const double step = prediction.step_seconds;
    const double ideal = one_rank_examples_per_second *
                         static_cast<double>(prediction.layout.ranks());
    extrapolated |= prediction.extrapolated();
    std::vector<std::string> cells = {
        absl::StrCat(prediction.layout.Name(),
                     prediction.extrapolated() ? " *" : ""),
        absl::StrCat(prediction.layout.micro_batch),
        MillisecondsText(step),
        IntervalText(prediction.step_interval, MillisecondsText),
        absl::StrFormat("%.0f", unit.Rate(prediction.examples_per_second)),
        PercentText(prediction.exposed_comm_seconds / step),
        PercentText(prediction.bubble_seconds / step),
        prediction.peak_bytes == 0
            ? "-"
            : absl::StrFormat("%.3g", prediction.peak_bytes * 1e-6)};
    if (with_efficiency) {
      cells.push_back(PercentText(prediction.examples_per_second / ideal));
    }
    cells.push_back(IntervalKind(prediction.conditions));
    table.AddRow(std::move(cells));
  }
  std::string links;
  for (const Prediction& prediction : predictions) {
    const std::string sentence = LinkSentence(prediction);
    if (!sentence.empty()) absl::StrAppend(&links, sentence, "\n");
  }
  return absl::StrCat(table.ToString(),
                      extrapolated ? "* beyond what was measured.\n" : "",
                      links, "\n", Assumptions(predictions));
}

std::string RecommendationText(const Recommendation& recommendation) {
  std::string text =
      absl::StrCat(recommendation.reason, "\n\n",
                   PredictionTable(absl::MakeSpan(recommendation.candidates)
                                       .subspan(0, kMostCandidates)));
  for (const std::string& reason : recommendation.left_out) {
    absl::StrAppend(&text, "Left out: ", reason, ".\n");
  }
  return text;
}

}  // namespace rankwise
