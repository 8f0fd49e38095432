// Order statistics and moments of a sample.

#ifndef ANALYSIS_STATS_STATISTICS_H_
#define ANALYSIS_STATS_STATISTICS_H_

#include "absl/types/span.h"

namespace rankwise {

// The q-quantile by linear interpolation between order statistics (Hyndman and
// Fan 1996, type 7: NumPy's default). NaN for an empty sample or one that
// holds a NaN. Requires 0 <= q <= 1.
double Quantile(absl::Span<const double> sample, double q);

double Median(absl::Span<const double> sample);

// NaN for an empty sample.
double Mean(absl::Span<const double> sample);

// Of values above 0. NaN for an empty sample.
double GeometricMean(absl::Span<const double> sample);

// With n - 1 in the denominator; NaN for fewer than two values.
double StandardDeviation(absl::Span<const double> sample);

struct Interval {
  double low = 0;
  double high = 0;
};

}  // namespace rankwise

#endif  // ANALYSIS_STATS_STATISTICS_H_
