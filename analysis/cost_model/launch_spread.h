// What one launch of a job measures otherwise than the next, at all sizes
// alike.

#ifndef ANALYSIS_COST_MODEL_LAUNCH_SPREAD_H_
#define ANALYSIS_COST_MODEL_LAUNCH_SPREAD_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"

namespace rankwise {

// One size and its samples: seconds of each call, the slowest rank's.
struct CostSamples {
  double bytes = 0;
  std::vector<double> seconds;
  int64_t launch = 0;  // of which launch or run; equal within one
};

// The error of times that come from all launches together, as that of a mean.
struct LaunchSpread {
  double relative_error = 0;      // 0 for one launch, which does not tell
  double degrees_of_freedom = 0;  // launches - 1
};

// Of each launch, the median over sizes of log(its median / all launches'
// median); the standard error of the mean of these.
LaunchSpread SpreadOfLaunches(absl::Span<const CostSamples> samples);

// A factor by which other launches would have moved all sizes: the exponential
// of a t-distributed draw.
double DrawLaunchFactor(const LaunchSpread& spread, std::mt19937_64& random);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_LAUNCH_SPREAD_H_
