// Measurements of the timing engine, the figures of a row computed from them,
// and the uncertainty of a median.
#ifndef RANKWISE_COMM_BENCH_TIMING_SERIES_H_
#define RANKWISE_COMM_BENCH_TIMING_SERIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise::comm_bench {

// Fewer samples get no interval: at a correlation of 0.7 it would cover the
// median in only 90 % of cases with 12 samples, and 72 % with 6.
inline constexpr int64_t kFewestForInterval = 15;

// A median, or a difference or ratio of medians, with its 95 % interval.
struct Estimate {
  double value = 0;
  double low = 0, high = 0;  // NaN for fewer than kFewestForInterval samples

  // Returns the distance to the farther end of the interval; NaN without one.
  double reach() const;
};

// `sample` is in order of time and not empty. The interval is
// SeriesMedianInterval's.
Estimate EstimateMedian(const std::vector<double>& sample);

// Returns a - b, assuming independence (MOVER: Zou and Donner 2008); if the
// same disturbances affect both, the interval is too wide.
Estimate Difference(const Estimate& a, const Estimate& b);

// Returns a / b, both above 0, from the difference of their logarithms.
Estimate Ratio(const Estimate& a, const Estimate& b);

// Returns "2.1", the reach in percent of the value; "-" without an interval.
std::string ReachInPercent(const Estimate& estimate);

// Combination of the ranks' times of one iteration.
enum class Across {
  kSlowest,   // longest duration of any rank; the default
  kTransfer,  // from the last start to the last end: excludes skew
  kMakespan,  // from the first start to the last end
  kMean,      // mean over ranks
};

// One iteration over all ranks. Starts and ends are on rank 0's clock.
struct Extent {
  double first_start = 0, last_start = 0, last_end = 0;
  // starts minus the ranks' deliberate delays
  double first_undelayed_start = 0, last_undelayed_start = 0;
  double slowest_seconds = 0, mean_seconds = 0;  // over the ranks' durations
};

struct Series {
  enum class End {
    kCounted,
    kPrecise,
    kOutOfTime,
    kMaxIterations,
    kInterrupted
  };

  // this rank's iterations; starts on rank 0's clock, since the earliest start
  // of any rank
  std::vector<double> seconds, start_seconds;

  // The other fields are equal on every rank; their size is independent of the
  // number of ranks.
  std::vector<Extent> extents;
  // indices of excluded iterations in which a rank started late; ascending
  std::vector<int64_t> late;
  double clock_error_seconds = 0;  // error bound of the starts
  End end = End::kCounted;

  int64_t iterations() const { return static_cast<int64_t>(extents.size()); }
};

// Returns the reason for the end, as in records and CSV.
const char* EndName(Series::End end);

// Sync::kWindow: an iteration is late if a rank started later than planned
// (plus its deliberate delay) by more than 50 us or a tenth of the median
// duration, whichever is longer, plus the clocks' error. `planned_seconds` and
// the series' starts are on the same clock.
std::vector<int64_t> MissedWindows(const Series& series,
                                   const std::vector<double>& planned_seconds);

// Sync::kBarrier: an iteration is late if the spread of the ranks' starts,
// minus their deliberate delays, exceeds ten times the median spread of all
// iterations, the median duration, and twice the clocks' error. So a barrier
// that always releases ranks unevenly is accepted, and a rank that was
// descheduled between barrier and start is not.
std::vector<int64_t> LeftBarrierLate(const Series& series);

// Returns one value per iteration that is not late.
std::vector<double> Combine(const Series& series, Across across);

// Quantiles are interpolated (Quantile). All are 0 if every iteration is late.
struct Summary {
  int64_t samples = 0;
  int64_t late = 0;                                       // excluded iterations
  double min = 0, median = 0, p95 = 0, p99 = 0, max = 0;  // seconds
  double median_low = 0, median_high = 0;  // 95 % interval of the median
  double skew = 0;  // median spread of the ranks' starts, in seconds
};

Summary Summarize(const Series& series, Across across);

// Returns the median with its interval.
Estimate MedianOf(const Summary& summary);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_SERIES_H_
