#include "analysis/cost_model/growth.h"

#include <cmath>
#include <cstddef>
#include <string>

namespace rankwise {
namespace {

constexpr Growth kGrowths[] = {Growth::kFlat, Growth::kTree, Growth::kRing};

bool IsMessage(absl::string_view collective) {
  return collective == "send_recv" || collective == "ping_pong" ||
         collective == "bidirectional";
}

double SumOfErrors(absl::Span<const CostCurve> curves, Growth growth) {
  double sum = 0;
  for (size_t i = 1; i < curves.size(); ++i) {
    const int64_t from = curves[i - 1].world_size, to = curves[i].world_size;
    const double alpha = AlphaGrowth(growth, to) / AlphaGrowth(growth, from);
    const double beta = BetaGrowth(growth, to) / BetaGrowth(growth, from);
    for (const CostPoint& point : curves[i].points) {
      const CostSegment& segment = curves[i - 1].SegmentFor(point.bytes);
      const double predicted =
          alpha * segment.alpha_seconds +
          beta * segment.beta_seconds_per_byte * point.bytes;
      sum += std::abs(std::log(predicted / point.median_seconds));
    }
  }
  return sum;
}

}  // namespace

absl::string_view GrowthName(Growth growth) {
  switch (growth) {
    case Growth::kFlat:
      return "flat";
    case Growth::kTree:
      return "tree";
    case Growth::kRing:
      return "ring";
  }
  return "";
}

std::optional<Growth> GrowthFromName(absl::string_view name) {
  for (const Growth growth : kGrowths) {
    if (GrowthName(growth) == name) return growth;
  }
  return std::nullopt;
}

double AlphaGrowth(Growth growth, int64_t world_size) {
  const auto ranks = static_cast<double>(world_size);
  if (growth == Growth::kTree) return std::ceil(std::log2(ranks));
  return growth == Growth::kRing ? ranks - 1 : 1;
}

double BetaGrowth(Growth growth, int64_t world_size) {
  const auto ranks = static_cast<double>(world_size);
  return growth == Growth::kRing ? (ranks - 1) / ranks : 1;
}

Growth AssumedGrowth(absl::string_view collective, absl::string_view backend) {
  if (backend == "fake" || IsMessage(collective)) return Growth::kFlat;
  const bool tree = collective == "broadcast" || collective == "reduce" ||
                    collective == "barrier";
  return tree ? Growth::kTree : Growth::kRing;
}

Growth FitGrowth(absl::Span<const CostCurve> curves, Growth assumed) {
  Growth best = assumed;
  double least = SumOfErrors(curves, assumed);
  for (const Growth growth : kGrowths) {
    const double sum = SumOfErrors(curves, growth);
    if (sum >= least) continue;
    least = sum;
    best = growth;
  }
  return best;
}

}  // namespace rankwise
