// The median of a sample, and what other samples of its kind would have given.

#ifndef ANALYSIS_STATS_SAMPLE_MEDIAN_H_
#define ANALYSIS_STATS_SAMPLE_MEDIAN_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

struct SampleMedian {
  double median = 0;
  Interval interval;            // 95 %, percentile bootstrap
  double relative_sigma = 0;    // standard error over the median
  std::vector<double> redrawn;  // medians of resamples
};

// The median of `sample`, which is neither empty nor negative, and of
// `resamples` bootstrap resamples (Efron 1979). These are drawn without drawing
// the samples: the k-th of n values drawn with replacement is the value at the
// k-th of n uniform order statistics, which is Beta(k, n - k + 1), so a
// resample costs the same whatever n is.
SampleMedian BootstrapMedian(absl::Span<const double> sample, int resamples,
                             std::mt19937_64& random);

// From `redrawn`: the 2.5 % and the 97.5 % quantile.
void SetInterval(SampleMedian* median);

}  // namespace rankwise

#endif  // ANALYSIS_STATS_SAMPLE_MEDIAN_H_
