// What a call costs by its bytes, from measured calls: the median of every size
// and one line through them, alpha + beta * bytes (Hockney 1994).
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

// The seconds of calls, each the slowest rank's, by bytes and by the number of
// the launch or run.
using CallSeconds = std::map<double, std::map<int64_t, std::vector<double>>>;

struct CostPoint {
  double bytes = 0;
  double median_seconds = 0;  // geometric mean of the launches' medians
  Interval interval;          // 95 %; of a single launch, within it
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
  int64_t hosts = 0;     // with equal numbers of ranks; 0: not known
  int64_t launches = 0;  // of comm_bench; 0: not known, or a stated cost
  // The measured sizes, ascending. None: a stated cost, the line alone.
  std::vector<CostPoint> points;
  CostLine line;
  double median_relative_error = 0;  // of the line, at the points
  // busbw = bytes / seconds * bus_factor; NaN: not known.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();

  // Between two measured sizes, the point on the straight line through their
  // medians; beyond them, the nearest measured point, with its own `bytes`.
  // Without points, the point on `line`.
  CostPoint PointAt(double bytes) const;

  // The median of PointAt, continued by the growth of `line` beyond the
  // measured sizes, on ranks among which alpha and beta are larger by these
  // factors.
  double SecondsFor(double bytes, double alpha_factor = 1,
                    double beta_factor = 1) const;

  // How far a measured size lies from the straight line through its two
  // neighbours, as a share of its median; the median over the sizes. Below 3
  // points median_relative_error.
  double InterpolationError() const;

  // Conditions under which the curve's own intervals are 95 % intervals:
  // "launches alike" of a single launch.
  std::set<std::string> Conditions() const;
};

// The launches' medians, the line by least squares of relative errors, and
// their intervals (docs/cost_model.md, "A curve"). A collective that moves no
// data, such as a barrier, has one size, 0, and a beta of 0. FailedPrecondition
// where fewer than 3 distinct sizes have samples.
absl::StatusOr<CostCurve> FitCostCurve(const CallSeconds& calls);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STATS_COST_CURVE_H_
