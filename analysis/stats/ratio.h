// What repetitions of two measurements say about their ratio: the one interval
// and the one test for it in this repository. docs/metrics.md says why.

#ifndef ANALYSIS_STATS_RATIO_H_
#define ANALYSIS_STATS_RATIO_H_

#include <vector>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// The two-sided p of Welch's test (1947) that two samples have the same mean,
// whatever their variances. NaN where one holds fewer than 2 values.
double WelchP(absl::Span<const double> a, absl::Span<const double> b);

// Of geometric means, numerator over denominator.
struct Ratio {
  double value = 0;
  // 95 %: Welch's for the difference of the means of the logarithms. It always
  // holds `value`. NaN where a sample holds fewer than 2 values.
  Interval interval;
  double p_value = 0;  // WelchP of the logarithms
};

// Both samples hold one value or more, all above 0.
Ratio RatioOf(absl::Span<const double> numerator,
              absl::Span<const double> denominator);

// Holm's correction (1979) of the p of several tests, in their order: rejecting
// what is below alpha rejects a true hypothesis among them with a probability
// of at most alpha. A NaN is a test that was not made: it stays and does not
// count.
std::vector<double> HolmCorrected(absl::Span<const double> p_values);

}  // namespace rankwise

#endif  // ANALYSIS_STATS_RATIO_H_
