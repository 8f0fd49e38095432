// Order statistics, bootstrap intervals and a rank test. docs/metrics.md says
// where they are used.

#ifndef ANALYSIS_STATISTICS_H_
#define ANALYSIS_STATISTICS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace rankwise {

// The q-quantile by linear interpolation between order statistics (Hyndman and
// Fan 1996, type 7: NumPy's default). NaN for an empty sample or one that
// holds a NaN. Requires 0 <= q <= 1.
double Quantile(absl::Span<const double> sample, double q);

double Median(absl::Span<const double> sample);

// NaN for an empty sample.
double Mean(absl::Span<const double> sample);

// With n - 1 in the denominator; NaN for fewer than two values.
double StandardDeviation(absl::Span<const double> sample);

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

struct MannWhitney {
  double u = 0;        // pairs in which a's value is larger; ties count half
  double p_value = 1;  // two-sided
  bool exact = false;  // else by the normal approximation
};

// Whether values of `a` tend to be larger or smaller than those of `b` (Mann
// and Whitney 1947). Exact, by their recurrence, for samples of at most 20
// values without ties; else by the normal approximation with their correction
// for ties and one of 1/2 for continuity, but never below SmallestMannWhitneyP.
// Neither sample may be empty or hold a NaN.
MannWhitney MannWhitneyTest(absl::Span<const double> a,
                            absl::Span<const double> b);

// The smallest two-sided p that samples of m and n values can reach: 2 over the
// number of ways to choose m of m + n. Requires m, n > 0.
double SmallestMannWhitneyP(size_t m, size_t n);

}  // namespace rankwise

#endif  // ANALYSIS_STATISTICS_H_
