#include "parallel/pipeline/schedule/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

absl::Status CheckStages(size_t num_layers, size_t num_stages) {
  if (num_stages < 1) {
    return absl::InvalidArgumentError(
        "0 stages: a model is cut into at least one");
  }
  if (num_stages > num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        num_stages, " stages of a model with ", num_layers,
        " layers: every stage needs at least one layer; use fewer stages"));
  }
  return absl::OkStatus();
}

absl::Status CheckCosts(absl::Span<const double> costs) {
  double sum = 0;
  for (size_t layer = 0; layer < costs.size(); ++layer) {
    sum += costs[layer];
    if (costs[layer] >= 0 && std::isfinite(sum)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the cost of layer ", layer, " is ", costs[layer],
                     ": costs must be finite, as their sum, and not negative"));
  }
  return absl::OkStatus();
}

// The linear partition problem, one stage more at a time.
Cuts Balance(absl::Span<const double> costs, size_t num_stages) {
  std::vector<double> sums = {0};  // [i]: of the first i costs
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  std::vector<double> best =
      sums;  // [i]: costliest stage of the first i layers
  std::vector<std::vector<size_t>> starts;  // of stage 1, 2, ..., by its end
  for (size_t stage = 1; stage < num_stages; ++stage) {
    std::vector<double> best_before = std::exchange(
        best, std::vector<double>(sums.size(),
                                  std::numeric_limits<double>::infinity()));
    std::vector<size_t>& start_of = starts.emplace_back(sums.size());
    for (size_t end = stage + 1; end < sums.size(); ++end) {
      for (size_t start = stage; start < end; ++start) {
        const double costliest =
            std::max(best_before[start], sums[end] - sums[start]);
        // Of equals the later cut: an activation function stays with the layer
        // before it, and the last stage computes the loss, too.
        if (costliest > best[end]) continue;
        best[end] = costliest;
        start_of[end] = start;
      }
    }
  }
  Cuts cuts;
  size_t end = costs.size();
  for (auto start_of = starts.rbegin(); start_of != starts.rend(); ++start_of) {
    end = (*start_of)[end];
    cuts.push_back(end);
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

absl::Status CheckCut(absl::string_view text, const Cuts& before, int64_t cut,
                      size_t num_layers) {
  if (cut < 1 || cut >= static_cast<int64_t>(num_layers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the cut ", cut, " in '", text, "' is outside the model: of ",
        num_layers, " layers, a later stage begins with layer 1 to ",
        num_layers - 1));
  }
  if (!before.empty() && cut <= static_cast<int64_t>(before.back())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cut ", cut, " in '", text, "' does not come after ",
                     before.back(), ": cuts ascend"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Cuts> BalanceLayers(absl::Span<const double> layer_costs,
                                   size_t num_stages) {
  RETURN_IF_ERROR(CheckStages(layer_costs.size(), num_stages));
  RETURN_IF_ERROR(CheckCosts(layer_costs));
  return Balance(layer_costs, num_stages);
}

absl::StatusOr<Cuts> ParseCuts(absl::string_view text, size_t num_layers,
                               size_t num_stages) {
  RETURN_IF_ERROR(CheckStages(num_layers, num_stages));
  std::vector<absl::string_view> words;
  if (!absl::StripAsciiWhitespace(text).empty()) {
    words = absl::StrSplit(text, ',');
  }
  Cuts cuts;
  for (const absl::string_view word : words) {
    int64_t cut = 0;
    if (!absl::SimpleAtoi(word, &cut)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the cut '", word, "' in '", text,
                       "' is not a number; cuts are written as 2,5"));
    }
    RETURN_IF_ERROR(CheckCut(text, cuts, cut, num_layers));
    cuts.push_back(static_cast<size_t>(cut));
  }
  if (cuts.size() + 1 == num_stages) return cuts;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' makes ", cuts.size() + 1, " stages, not ", num_stages,
      ": too ", cuts.size() + 1 < num_stages ? "few" : "many",
      " cuts, one less than stages is needed"));
}

}  // namespace rankwise
