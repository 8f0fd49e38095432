// Order statistics and bootstrap intervals. docs/metrics.md says where they
// are used.

#ifndef ANALYSIS_STATISTICS_H_
#define ANALYSIS_STATISTICS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace rankwise {

// The q-quantile by linear interpolation between order statistics (Hyndman and
// Fan 1996, type 7: NumPy's default). NaN for an empty sample or one that
// holds a NaN. Requires 0 <= q <= 1.
double Quantile(absl::Span<const double> sample, double q);

double Median(absl::Span<const double> sample);

struct Interval {
  double low = 0;
  double high = 0;
};

struct BootstrapConfig {
  int resamples = 10000;
  double confidence = 0.95;
  uint64_t seed = 0;  // equal seeds and samples give equal intervals
};

// Percentile-bootstrap interval (Efron 1979) of median(numerator) /
// median(denominator), each sample resampled independently with replacement.
// Neither sample may be empty.
Interval BootstrapRatioOfMedians(absl::Span<const double> numerator,
                                 absl::Span<const double> denominator,
                                 const BootstrapConfig& config = {});

}  // namespace rankwise

#endif  // ANALYSIS_STATISTICS_H_
