#include "comm_bench/timing/series.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_format.h"

namespace rankwise::comm_bench {
namespace {

constexpr double kWindowTolerance = 50e-6;
constexpr double kWindowShare = 0.1;
constexpr double kBarrierFactor = 10;

double MedianDuration(const Series& series) {
  return Median(NumbersOf(series.extents, &Extent::slowest_seconds));
}

std::vector<int64_t> Above(const std::vector<double>& values, double limit) {
  std::vector<int64_t> above;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > limit) above.push_back(static_cast<int64_t>(i));
  }
  return above;
}

double CombineOne(const Extent& extent, Across across) {
  switch (across) {
    case Across::kTransfer:
      return extent.last_end - extent.last_start;
    case Across::kMakespan:
      return extent.last_end - extent.first_start;
    case Across::kMean:
      return extent.mean_seconds;
    case Across::kSlowest:
      break;
  }
  return extent.slowest_seconds;
}

std::vector<Extent> CountedExtents(const Series& series) {
  std::vector<Extent> counted;
  auto late = series.late.begin();
  for (int64_t i = 0; i < series.iterations(); ++i) {
    if (late != series.late.end() && *late == i) {
      ++late;
    } else {
      counted.push_back(series.extents[i]);
    }
  }
  return counted;
}

}  // namespace

double Estimate::reach() const { return std::max(value - low, high - value); }

Estimate EstimateMedian(const std::vector<double>& sample) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const double median = Median(sample);
  if (static_cast<int64_t>(sample.size()) < kFewestForInterval) {
    return {median, kNone, kNone};
  }
  const Interval interval = SeriesMedianInterval(sample);
  return {median, interval.low, interval.high};
}

Estimate Difference(const Estimate& a, const Estimate& b) {
  const double value = a.value - b.value;
  return {value, value - std::hypot(a.value - a.low, b.high - b.value),
          value + std::hypot(a.high - a.value, b.value - b.low)};
}

Estimate Ratio(const Estimate& a, const Estimate& b) {
  const auto log = [](const Estimate& e) -> Estimate {
    return {std::log(e.value), std::log(e.low), std::log(e.high)};
  };
  const Estimate logs = Difference(log(a), log(b));
  return {std::exp(logs.value), std::exp(logs.low), std::exp(logs.high)};
}

std::string ReachInPercent(const Estimate& estimate) {
  if (std::isnan(estimate.reach()) || estimate.value <= 0) return "-";
  return absl::StrFormat("%.1f", 100 * estimate.reach() / estimate.value);
}

const char* EndName(Series::End end) {
  switch (end) {
    case Series::End::kCounted:
      break;
    case Series::End::kPrecise:
      return "precise";
    case Series::End::kOutOfTime:
      return "out_of_time";
    case Series::End::kMaxIterations:
      return "max_iterations";
    case Series::End::kInterrupted:
      return "interrupted";
  }
  return "counted";
}

std::vector<int64_t> MissedWindows(const Series& series,
                                   const std::vector<double>& planned_seconds) {
  if (series.iterations() == 0) return {};
  std::vector<double> lateness;
  for (int64_t i = 0; i < series.iterations(); ++i) {
    lateness.push_back(series.extents[i].last_undelayed_start -
                       planned_seconds[i]);
  }
  return Above(lateness, std::max(kWindowTolerance,
                                  kWindowShare * MedianDuration(series)) +
                             series.clock_error_seconds);
}

std::vector<int64_t> LeftBarrierLate(const Series& series) {
  if (series.iterations() == 0) return {};
  const std::vector<double> spreads =
      NumbersOf(series.extents, [](const Extent& extent) {
        return extent.last_undelayed_start - extent.first_undelayed_start;
      });
  return Above(spreads, std::max({kBarrierFactor * Median(spreads),
                                  MedianDuration(series),
                                  2 * series.clock_error_seconds}));
}

std::vector<double> Combine(const Series& series, Across across) {
  return NumbersOf(CountedExtents(series), [across](const Extent& extent) {
    return CombineOne(extent, across);
  });
}

Summary Summarize(const Series& series, Across across) {
  std::vector<double> sorted = Combine(series, across);
  const Interval interval = SeriesMedianInterval(sorted);
  std::sort(sorted.begin(), sorted.end());
  Summary summary;
  summary.samples = static_cast<int64_t>(sorted.size());
  summary.late = static_cast<int64_t>(series.late.size());
  if (sorted.empty()) return summary;
  summary.min = sorted.front();
  summary.median = Median(sorted);
  summary.p95 = Quantile(sorted, 0.95);
  summary.p99 = Quantile(sorted, 0.99);
  summary.max = sorted.back();
  summary.median_low = interval.low;
  summary.median_high = interval.high;
  summary.skew =
      Median(NumbersOf(CountedExtents(series), [](const Extent& extent) {
        return extent.last_start - extent.first_start;
      }));
  return summary;
}

Estimate MedianOf(const Summary& summary) {
  if (summary.samples >= kFewestForInterval) {
    return {summary.median, summary.median_low, summary.median_high};
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {summary.median, kNone, kNone};
}

}  // namespace rankwise::comm_bench
