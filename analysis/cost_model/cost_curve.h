// What a collective costs by its size: the measured median of every size, and
// one line through them, alpha + beta * bytes (Hockney 1994).
#ifndef RANKWISE_ANALYSIS_COST_MODEL_COST_CURVE_H_
#define RANKWISE_ANALYSIS_COST_MODEL_COST_CURVE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// One size and its samples: seconds of each call, the slowest rank's.
struct CostSamples {
  double bytes = 0;
  std::vector<double> seconds;
  int64_t launch = 0;  // of which launch or run; equal within one
};

struct CostPoint {
  double bytes = 0;
  double median_seconds = 0;
  Interval interval;  // 95 %, of the median
};

struct CostLine {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  Interval alpha_interval;  // 95 %
  Interval beta_interval;

  double SecondsFor(double bytes) const {
    return alpha_seconds + beta_seconds_per_byte * bytes;
  }
};

struct CostCurve {
  std::string collective;  // "all_reduce"
  std::string backend;
  int64_t world_size = 1;
  // The measured sizes, ascending. None: a stated cost, the line alone.
  std::vector<CostPoint> points;
  CostLine line;
  double median_relative_error = 0;  // of the line, at the points
  // busbw = bytes / seconds * bus_factor; NaN: not known.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();

  // Between two measured sizes on the straight line through their medians,
  // which is exact wherever alpha and beta are the same for both. Beyond the
  // measured sizes the nearest point, whose `bytes` says so. Without points
  // that of `line`.
  CostPoint PointAt(double bytes) const;

  // The median of PointAt, continued by the growth of `line` beyond the
  // measured sizes.
  double SecondsFor(double bytes) const;

  // How far a measured size lies from the straight line through its two
  // neighbours, as a share of its median; the median over the sizes. Below 3
  // points median_relative_error.
  double InterpolationError() const;
};

// The medians of all launches' calls, and the line by weighted least squares:
// relative residuals, so that microseconds and seconds weigh alike, alpha and
// beta not negative. Calls of several launches (--relaunch) widen the intervals
// by how far launches lie apart at all sizes alike. A collective that moves no
// data, such as a barrier, has one size, 0, and a beta of 0.
// FailedPrecondition where fewer than 3 distinct sizes have samples.
absl::StatusOr<CostCurve> FitCostCurve(absl::Span<const CostSamples> samples);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_COST_CURVE_H_
