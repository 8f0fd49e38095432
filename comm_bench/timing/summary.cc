#include "comm_bench/timing/summary.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "comm_bench/timing/order_statistics.h"

namespace rankwise::comm_bench {
namespace {

// When the ranks of one iteration started and ended.
struct Extent {
  double first_start = 0, last_start = 0, last_end = 0;
};

Extent ExtentOf(const Series& series, int64_t iteration) {
  Extent extent;
  for (size_t rank = 0; rank < series.seconds.size(); ++rank) {
    const double start = series.start_seconds[rank][iteration];
    const double end = start + series.seconds[rank][iteration];
    const bool first = rank == 0;
    extent.first_start = first ? start : std::min(extent.first_start, start);
    extent.last_start = first ? start : std::max(extent.last_start, start);
    extent.last_end = first ? end : std::max(extent.last_end, end);
  }
  return extent;
}

double Slowest(const Series& series, int64_t iteration) {
  double slowest = 0;
  for (const auto& seconds : series.seconds) {
    slowest = std::max(slowest, seconds[iteration]);
  }
  return slowest;
}

double Mean(const Series& series, int64_t iteration) {
  double sum = 0;
  for (const auto& seconds : series.seconds) sum += seconds[iteration];
  return sum / static_cast<double>(series.seconds.size());
}

double CombineOne(const Series& series, int64_t iteration, Across across) {
  const Extent extent = ExtentOf(series, iteration);
  switch (across) {
    case Across::kTransfer:
      return extent.last_end - extent.last_start;
    case Across::kMakespan:
      return extent.last_end - extent.first_start;
    case Across::kMean:
      return Mean(series, iteration);
    case Across::kSlowest:
      break;
  }
  return Slowest(series, iteration);
}

// The iterations that count.
std::vector<int64_t> Counted(const Series& series) {
  std::vector<int64_t> counted;
  auto late = series.late.begin();
  for (int64_t i = 0; i < series.iterations(); ++i) {
    if (late != series.late.end() && *late == i) {
      ++late;
    } else {
      counted.push_back(i);
    }
  }
  return counted;
}

double MedianSkew(const Series& series) {
  std::vector<double> spreads;
  for (const int64_t iteration : Counted(series)) {
    const Extent extent = ExtentOf(series, iteration);
    spreads.push_back(extent.last_start - extent.first_start);
  }
  return Median(std::move(spreads));
}

}  // namespace

std::vector<double> Combine(const Series& series, Across across) {
  std::vector<double> combined;
  for (const int64_t iteration : Counted(series)) {
    combined.push_back(CombineOne(series, iteration, across));
  }
  return combined;
}

Summary Summarize(const Series& series, Across across) {
  std::vector<double> sorted = Combine(series, across);
  std::sort(sorted.begin(), sorted.end());
  Summary summary;
  summary.samples = static_cast<int64_t>(sorted.size());
  summary.late = static_cast<int64_t>(series.late.size());
  if (sorted.empty()) return summary;
  summary.min = sorted.front();
  summary.median = QuantileOfSorted(sorted, 0.5);
  summary.p95 = QuantileOfSorted(sorted, 0.95);
  summary.p99 = QuantileOfSorted(sorted, 0.99);
  summary.max = sorted.back();
  const MedianInterval interval = IntervalOfMedian(sorted);
  summary.median_low = interval.low;
  summary.median_high = interval.high;
  summary.skew = MedianSkew(series);
  return summary;
}

Estimate MedianOf(const Summary& summary) {
  if (summary.samples >= kFewestSamples) {
    return {summary.median, summary.median_low, summary.median_high};
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {summary.median, kNone, kNone};
}

}  // namespace rankwise::comm_bench
