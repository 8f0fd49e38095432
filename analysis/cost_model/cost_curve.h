// What a collective costs by its size: Hockney's alpha + beta * bytes (Hockney
// 1994), piece by piece, as algorithms and protocols change with the size.

#ifndef ANALYSIS_COST_MODEL_COST_CURVE_H_
#define ANALYSIS_COST_MODEL_COST_CURVE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/launch_spread.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

struct CostSegment {
  double min_bytes = 0;                                        // inclusive
  double max_bytes = std::numeric_limits<double>::infinity();  // exclusive
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  Interval alpha_interval;  // 95 %
  Interval beta_interval;
};

struct CostPoint {
  double bytes = 0;
  double median_seconds = 0;
  Interval interval;  // 95 %, of the median
};

struct CostCurve {
  std::string collective;  // "all_reduce"
  std::string backend;
  int64_t world_size = 1;
  std::vector<CostPoint> points;      // by size: what was fitted
  std::vector<CostSegment> segments;  // by size, without gaps; not empty
  double median_relative_error = 0;   // of the segments, at the points
  // busbw = bytes / seconds * bus_factor; NaN: not known.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();

  double SecondsFor(double bytes) const;
  const CostSegment& SegmentFor(double bytes) const;
};

struct CostFitConfig {
  int max_segments = 3;
  int min_points_per_segment = 3;
  // Fits of resampled calls, for the intervals.
  int resamples = 300;
  uint64_t seed = 0;
};

// Of a collective that moves no data, such as a barrier: one size, and a cost
// that does not follow it.
CostCurve ConstantCurve(absl::Span<const CostSamples> samples,
                        const CostFitConfig& config = {});

// Fits `points` to as many pieces as the points ask for and no more; robust
// against single sizes that are far off. FailedPrecondition where fewer than
// min_points_per_segment distinct sizes have samples. Intervals hold the calls'
// noise, how far sizes lie from any line and, of several launches, how far
// these lie apart.
absl::StatusOr<CostCurve> FitCostCurve(absl::Span<const CostSamples> points,
                                       const CostFitConfig& config = {});

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_COST_CURVE_H_
