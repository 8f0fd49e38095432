#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "parallel/pipeline/schedule/schedule.h"
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

// Solves the linear partition problem by adding stages one by one.
class Balancer {
 public:
  explicit Balancer(absl::Span<const double> costs) : sums_(costs.size() + 1) {
    std::partial_sum(costs.begin(), costs.end(), sums_.begin() + 1);
    best_ = sums_;  // with one stage
  }

  // Adds a stage to the partitions of the first `end` layers, for every `end`.
  void AddStage() {
    const size_t before = starts_.size() + 1;  // number of stages so far
    std::vector<double> best(sums_.size());
    std::vector<size_t> starts(sums_.size());
    for (size_t end = before + 1; end < sums_.size(); ++end) {
      starts[end] = BestStart(before, end);
      best[end] = Costliest(starts[end], end);
    }
    best_ = std::move(best);
    starts_.push_back(std::move(starts));
  }

  Cuts Result() const {
    Cuts cuts(starts_.size());
    size_t end = sums_.size() - 1;
    for (size_t stage = cuts.size(); stage > 0; --stage)
      end = cuts[stage - 1] = starts_[stage - 1][end];
    return cuts;
  }

 private:
  double Costliest(size_t start, size_t end) const {
    return std::max(best_[start], sums_[end] - sums_[start]);
  }

  // As `start` grows, the costliest earlier stage gets no cheaper and the last
  // stage no costlier: the best start is where the two cross, or one before.
  size_t BestStart(size_t first, size_t end) const {
    size_t low = first, high = end - 1;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (best_[middle] >= sums_[end] - sums_[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const bool earlier =
        low > first && Costliest(low - 1, end) < Costliest(low, end);
    size_t start = earlier ? low - 1 : low;
    // Among equals the later cut: an activation function stays with the
    // preceding layer, and the last stage also computes the loss.
    while (start + 1 < end &&
           Costliest(start + 1, end) <= Costliest(start, end))
      ++start;
    return start;
  }

  std::vector<double> sums_;  // [i]: sum of the first i costs
  std::vector<double> best_;  // [i]: costliest stage of the first i layers
  // First layers of stage 1, 2, ..., by the stage's end.
  std::vector<std::vector<size_t>> starts_;
};

}  // namespace

absl::StatusOr<Cuts> BalanceLayers(absl::Span<const double> layer_costs,
                                   size_t num_stages) {
  RETURN_IF_ERROR(CheckStages(layer_costs.size(), num_stages));
  RETURN_IF_ERROR(CheckCosts(layer_costs));
  Balancer balancer(layer_costs);
  for (size_t stage = 1; stage < num_stages; ++stage) balancer.AddStage();
  return balancer.Result();
}

absl::StatusOr<Cuts> ParseCuts(absl::string_view text, size_t num_layers,
                               size_t num_stages) {
  RETURN_IF_ERROR(CheckStages(num_layers, num_stages));
  std::vector<absl::string_view> words;
  if (!absl::StripAsciiWhitespace(text).empty()) {
    words = absl::StrSplit(text, ',');
  }
  Cuts cuts;
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("the cut ", why...));
  };
  for (const absl::string_view word : words) {
    int64_t cut = 0;
    if (!absl::SimpleAtoi(word, &cut))
      return refuse("'", word, "' in '", text,
                    "' is not a number; cuts are written as 2,5");
    if (cut < 1 || cut >= static_cast<int64_t>(num_layers))
      return refuse(
          cut, " in '", text, "' is outside the model: of ", num_layers,
          " layers, a later stage begins with layer 1 to ", num_layers - 1);
    if (!cuts.empty() && cut <= static_cast<int64_t>(cuts.back()))
      return refuse(cut, " in '", text, "' does not come after ", cuts.back(),
                    ": cuts ascend");
    cuts.push_back(static_cast<size_t>(cut));
  }
  if (cuts.size() + 1 == num_stages) return cuts;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' makes ", cuts.size() + 1, " stages, not ", num_stages,
      ": too ", cuts.size() + 1 < num_stages ? "few" : "many",
      " cuts; the number of stages minus one is needed"));
}

}  // namespace rankwise
