#include "analysis/cost_model/network_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// From a median of absolute errors to 95 % of normal ones.
constexpr double kErrorAt95 = 1.4826 * 1.959964;

bool IsWithin(const CostCurve& curve, double bytes) {
  return curve.points.empty() || (curve.points.front().bytes <= bytes &&
                                  bytes <= curve.points.back().bytes);
}

// `curve` taken to another world size by its growth.
CostEstimate EstimateBy(const CostCurve& curve, Growth growth, double bytes,
                        int64_t world_size) {
  const CostSegment& segment = curve.SegmentFor(bytes);
  const double alpha =
      AlphaGrowth(growth, world_size) / AlphaGrowth(growth, curve.world_size);
  const double beta = bytes * BetaGrowth(growth, world_size) /
                      BetaGrowth(growth, curve.world_size);
  CostEstimate estimate;
  estimate.seconds =
      alpha * segment.alpha_seconds + beta * segment.beta_seconds_per_byte;
  const auto bound = [&](double Interval::*end) {
    return std::hypot(
        alpha * (segment.alpha_interval.*end - segment.alpha_seconds),
        beta * (segment.beta_interval.*end - segment.beta_seconds_per_byte),
        kErrorAt95 * curve.median_relative_error * estimate.seconds);
  };
  estimate.interval = {std::max(0.0, estimate.seconds - bound(&Interval::low)),
                       estimate.seconds + bound(&Interval::high)};
  estimate.extrapolated = !IsWithin(curve, bytes);
  return estimate;
}

CostEstimate Mix(const CostEstimate& a, const CostEstimate& b,
                 double share_of_b) {
  const auto mix = [share_of_b](double x, double y) {
    return (1 - share_of_b) * x + share_of_b * y;
  };
  return {mix(a.seconds, b.seconds),
          {mix(a.interval.low, b.interval.low),
           mix(a.interval.high, b.interval.high)},
          a.extrapolated || b.extrapolated};
}

CostEstimate EstimateFrom(const CollectiveCosts& costs, double bytes,
                          int64_t world_size) {
  const auto after = std::find_if(costs.curves.begin(), costs.curves.end(),
                                  [world_size](const CostCurve& curve) {
                                    return curve.world_size >= world_size;
                                  });
  const auto by = [&](const CostCurve& curve) {
    return EstimateBy(curve, costs.growth, bytes, world_size);
  };
  if (after != costs.curves.end() && after->world_size == world_size) {
    return by(*after);
  }
  if (after == costs.curves.begin() || after == costs.curves.end()) {
    CostEstimate estimate =
        by(after == costs.curves.begin() ? costs.curves.front()
                                         : costs.curves.back());
    estimate.extrapolated = true;
    return estimate;
  }
  const CostCurve& before = *std::prev(after);
  const auto place = [](int64_t ranks) {
    return std::log(static_cast<double>(ranks));
  };
  const double share = (place(world_size) - place(before.world_size)) /
                       (place(after->world_size) - place(before.world_size));
  return Mix(by(before), by(*after), share);
}

}  // namespace

const CollectiveCosts* NetworkModel::Find(absl::string_view collective) const {
  const CollectiveCosts* any = nullptr;
  for (const CollectiveCosts& costs : collectives) {
    if (costs.collective == collective) return &costs;
    if (costs.collective == kAnyCollective) any = &costs;
  }
  return any;
}

absl::StatusOr<CostEstimate> NetworkModel::Estimate(
    absl::string_view collective, double bytes, int64_t world_size) const {
  if (!(bytes >= 0) || std::isinf(bytes) || world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(collective, " of ", bytes, " bytes on ", world_size,
                     " ranks: there is no such call"));
  }
  if (world_size == 1) return CostEstimate();
  const CollectiveCosts* costs = Find(collective);
  if (costs == nullptr || costs->curves.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "the costs of ", collective, " over ", name.empty() ? backend : name,
        " were not measured: run comm_bench with --collectives=", collective,
        " --record=FILE and fit again"));
  }
  CostEstimate estimate = EstimateFrom(*costs, bytes, world_size);
  // A stated model holds everywhere.
  if (costs->collective == kAnyCollective) estimate.extrapolated = false;
  return estimate;
}

NetworkModel FlatNetwork(double alpha_seconds, double beta_seconds_per_byte) {
  CostSegment line;
  line.alpha_seconds = alpha_seconds;
  line.beta_seconds_per_byte = beta_seconds_per_byte;
  line.alpha_interval = {alpha_seconds, alpha_seconds};
  line.beta_interval = {beta_seconds_per_byte, beta_seconds_per_byte};
  NetworkModel network;
  network.name = "flat";
  network.backend = "fake";
  CostCurve curve;
  curve.collective = std::string(kAnyCollective);
  curve.backend = network.backend;
  curve.world_size = 2;
  curve.segments = {line};
  network.collectives = {{curve.collective,
                          Growth::kFlat,
                          /*growth_is_assumed=*/true,
                          {curve}}};
  return network;
}

}  // namespace rankwise
