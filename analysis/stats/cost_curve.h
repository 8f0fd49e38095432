// Call duration as a function of bytes, from measured calls: the median of
// every size and a line through the medians, alpha + beta * bytes (Hockney
// 1994).
#ifndef RANKWISE_ANALYSIS_STATS_COST_CURVE_H_
#define RANKWISE_ANALYSIS_STATS_COST_CURVE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// Call durations in seconds, each the slowest rank's, by bytes and by index of
// the launch or run.
using CallSeconds = std::map<double, std::map<int64_t, std::vector<double>>>;

struct CostPoint {
  double bytes = 0;
  double median_seconds = 0;  // geometric mean of the launches' medians
  Interval interval;          // 95 %; of a single launch, from its calls only
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
  int64_t world_size = 1;
  int64_t hosts = 0;     // with equal numbers of ranks; 0 if unknown
  int64_t launches = 0;  // of comm_bench; 0 if unknown or a stated cost
  // measured sizes, ascending; empty for a stated cost, which is only a line
  std::vector<CostPoint> points;
  CostLine line;
  double median_relative_error = 0;  // of the line, at the points
  // busbw = bytes / seconds * bus_factor; NaN if unknown
  double bus_factor = std::numeric_limits<double>::quiet_NaN();

  // Interpolates linearly between the medians of two measured sizes; beyond
  // them, returns the nearest measured point, with its own `bytes`. Without
  // points, returns the point on `line`.
  CostPoint PointAt(double bytes) const;

  // Returns the median of PointAt, extrapolated beyond the measured sizes with
  // the slope of `line`. The factors scale alpha and beta to another group of
  // ranks.
  double SecondsFor(double bytes, double alpha_factor = 1,
                    double beta_factor = 1) const;

  // Returns the median over the sizes of the relative deviation of a measured
  // size from the straight line through its two neighbours; with fewer than 3
  // points, median_relative_error.
  double InterpolationError() const;

  // Conditions under which the curve's intervals are 95 % intervals: "launches
  // alike" for a single launch.
  std::set<std::string> Conditions() const;
};

// Fits the launches' medians, the line by least squares of relative errors, and
// their intervals (docs/cost_model.md, "A curve"). A collective that moves no
// data, such as a barrier, has one size, 0, and a beta of 0. FailedPrecondition
// if fewer than 3 distinct sizes have samples.
absl::StatusOr<CostCurve> FitCostCurve(const CallSeconds& calls);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STATS_COST_CURVE_H_
