// From raw samples to the numbers of a row.
#ifndef RANKWISE_COMM_BENCH_TIMING_SUMMARY_H_
#define RANKWISE_COMM_BENCH_TIMING_SUMMARY_H_

#include <cstdint>
#include <vector>

#include "comm_bench/timing/across.h"
#include "comm_bench/timing/order_statistics.h"
#include "comm_bench/timing/series.h"

namespace rankwise::comm_bench {

// One value per iteration that counts.
std::vector<double> Combine(const Series& series, Across across);

// Quantiles interpolate between order statistics (order_statistics.h). All are
// 0 where no iteration counts.
struct Summary {
  int64_t samples = 0;
  int64_t late = 0;                                       // iterations left out
  double min = 0, median = 0, p95 = 0, p99 = 0, max = 0;  // seconds
  double median_low = 0, median_high = 0;  // 95 % interval of the median
  double skew = 0;  // median spread of the ranks' starts, seconds
};

Summary Summarize(const Series& series, Across across);

// The median with its interval.
Estimate MedianOf(const Summary& summary);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_SUMMARY_H_
