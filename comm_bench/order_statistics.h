// Quantiles, and how well a median is known.
#ifndef RANKWISE_COMM_BENCH_ORDER_STATISTICS_H_
#define RANKWISE_COMM_BENCH_ORDER_STATISTICS_H_

#include <vector>

#include "absl/types/span.h"

namespace rankwise::comm_bench {

// Linear interpolation between order statistics (Hyndman and Fan 1996, type 7:
// NumPy's default). `sorted` ascending and not empty; 0 <= q <= 1.
double QuantileOfSorted(absl::Span<const double> sorted, double q);

// `sample` not empty.
double Median(std::vector<double> sample);

struct MedianInterval {
  double low = 0, high = 0;
};

// The order statistics that enclose the median with at least 95 %: binomial,
// distribution-free (Le Boudec 2010, theorem 2.1). Below six samples the
// extremes, which enclose it with less. `sorted` ascending and not empty.
MedianInterval IntervalOfMedian(absl::Span<const double> sorted);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_ORDER_STATISTICS_H_
