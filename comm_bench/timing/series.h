// What the timing engine measures, the numbers of a row made of it, and how
// well a median is known.
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
  double low = 0, high = 0;  // NaN: fewer than kFewestForInterval samples

  // Distance to the farther end of the interval; NaN if there is none.
  double reach() const;
};

// `sample`: in order of time, not empty. The interval is
// SeriesMedianInterval's.
Estimate EstimateMedian(const std::vector<double>& sample);

// a - b, assumed to be independent (MOVER: Zou and Donner 2008); if the same
// disturbances affect both, the interval is too wide.
Estimate Difference(const Estimate& a, const Estimate& b);

// a / b, both above 0, by the difference of their logarithms.
Estimate Ratio(const Estimate& a, const Estimate& b);

// "2.1": the reach in percent of the value; "-" where there is none.
std::string ReachInPercent(const Estimate& estimate);

// How the ranks' times of one iteration become one.
enum class Across {
  kSlowest,   // the longest time of any rank, from its own start: the default
  kTransfer,  // from the last start to the last end: without the skew
  kMakespan,  // from the first start to the last end
  kMean,      // over ranks
};

// One iteration over all ranks. Starts and ends are on rank 0's clock.
struct Extent {
  double first_start = 0, last_start = 0, last_end = 0;
  // Of the starts less the ranks' deliberate arrivals.
  double first_undelayed_start = 0, last_undelayed_start = 0;
  double slowest_seconds = 0, mean_seconds = 0;  // of the ranks' own times
};

struct Series {
  enum class End {
    kCounted,
    kPrecise,
    kOutOfTime,
    kMaxIterations,
    kInterrupted
  };

  // Of this rank, per iteration. Starts are on rank 0's clock, since the
  // earliest start of all ranks.
  std::vector<double> seconds, start_seconds;

  // All else is the same on every rank, and no larger for many of them.
  std::vector<Extent> extents;
  // Iterations that are not to be counted, as a rank started late; ascending.
  std::vector<int64_t> late;
  double clock_error_seconds = 0;  // bound of the starts' error
  End end = End::kCounted;

  int64_t iterations() const { return static_cast<int64_t>(extents.size()); }
};

// Why a series ended, as records and CSV call it.
const char* EndName(Series::End end);

// Sync::kWindow: an iteration is late when a rank started later than planned
// (and than its deliberate arrival) by more than 50 us or a tenth of the median
// duration, whichever is longer, plus the clocks' error. `planned_seconds` and
// the series' starts are on the same clock.
std::vector<int64_t> MissedWindows(const Series& series,
                                   const std::vector<double>& planned_seconds);

// Sync::kBarrier: an iteration is late when the ranks' starts, less their
// deliberate arrivals, lie further apart than ten times the median of all
// iterations, than the median duration, and than twice the clocks' error. So a
// barrier that always lets ranks go unevenly is taken as it is, and a rank that
// lost its core between barrier and start is not.
std::vector<int64_t> LeftBarrierLate(const Series& series);

// One value per iteration that counts.
std::vector<double> Combine(const Series& series, Across across);

// Quantiles interpolate between order statistics (Quantile). All are
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

#endif  // RANKWISE_COMM_BENCH_TIMING_SERIES_H_
