// What a message costs at once, and what each byte of it: Hockney's model
// (Hockney 1994), time = alpha + beta * bytes.
#ifndef RANKWISE_COMM_BENCH_SWEEP_COST_FIT_H_
#define RANKWISE_COMM_BENCH_SWEEP_COST_FIT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rankwise::comm_bench {

struct CostPoint {
  double bytes = 0;
  double seconds = 0;  // median
};

struct CostFit {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  // Median over the points of |model / measured - 1|: how far to trust it.
  double median_relative_error = 0;

  double SecondsFor(double bytes) const {
    return alpha_seconds + beta_seconds_per_byte * bytes;
  }
};

// Minimises the sum of the points' |model / measured - 1|, alpha and beta not
// negative. All sizes weigh the same, and less than half of the points may be
// far off, such as sizes at which the algorithm changes, without moving the
// fit. The least sum is reached by a line through two points, or one point and
// the origin, or flat through one, so all of those are tried:
// O(points^3).
//
// Points without time (rows without samples) are left out. FailedPrecondition
// when fewer than three distinct sizes remain.
absl::StatusOr<CostFit> FitCost(absl::Span<const CostPoint> points);

// "alpha 45.20 us, beta 0.25 ns/B (4 GB/s), median error 3.1 %".
std::string FormatCostFit(const CostFit& fit);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_COST_FIT_H_
