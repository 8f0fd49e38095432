#include "analysis/prediction/simulated_layout.h"

namespace rankwise {

absl::Status CallCosts::Prepare(double bytes) {
  if (world_size_ == 1 || estimates_.count(bytes) > 0) return absl::OkStatus();
  const absl::StatusOr<CostEstimate> estimate =
      network_.Estimate(collective_, bytes, world_size_);
  if (!estimate.ok()) return estimate.status();
  extrapolated_ |= estimate->extrapolated;
  estimates_.emplace(bytes, *estimate);
  return absl::OkStatus();
}

double CallCosts::Seconds(double bytes, CostSide side) const {
  if (world_size_ == 1) return 0;
  const CostEstimate& estimate = estimates_.at(bytes);
  if (side == CostSide::kLow) return estimate.interval.low;
  return side == CostSide::kHigh ? estimate.interval.high : estimate.seconds;
}

}  // namespace rankwise
