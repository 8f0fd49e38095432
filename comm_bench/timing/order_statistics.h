// How well a median is known.
#ifndef RANKWISE_COMM_BENCH_TIMING_ORDER_STATISTICS_H_
#define RANKWISE_COMM_BENCH_TIMING_ORDER_STATISTICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise::comm_bench {

// The order statistics that enclose the median with at least 95 %: binomial,
// distribution-free (Le Boudec 2010, theorem 2.1). Below six samples the
// extremes, which enclose it with less. `sorted` ascending and not empty.
Interval IntervalOfMedian(absl::Span<const double> sorted);

// With fewer samples even their extremes do not enclose the median with 95 %.
inline constexpr int64_t kFewestSamples = 6;

// A median, or a difference of medians, with its 95 % interval.
struct Estimate {
  double value = 0;
  double low = 0, high = 0;  // NaN: fewer than kFewestSamples samples

  // How far the interval reaches to its farther side; NaN where there is none.
  double reach() const;
};

// `sample` not empty.
Estimate EstimateMedian(std::vector<double> sample);

// a - b, as if they were independent (MOVER: Zou and Donner 2008); where the
// same disturbances move both, the interval is wider than it need be.
Estimate Difference(const Estimate& a, const Estimate& b);

// "2.1": the reach in percent of the value; "-" where there is none.
std::string ReachInPercent(const Estimate& estimate);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_ORDER_STATISTICS_H_
