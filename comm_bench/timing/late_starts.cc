#include "comm_bench/timing/late_starts.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "comm_bench/timing/order_statistics.h"

namespace rankwise::comm_bench {
namespace {

constexpr double kWindowTolerance = 50e-6;
constexpr double kWindowShare = 0.1;
constexpr double kBarrierFactor = 10;

// Of the slowest rank of each iteration.
double MedianDuration(const Series& series) {
  std::vector<double> slowest = series.seconds[0];
  for (const auto& seconds : series.seconds) {
    for (size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], seconds[i]);
    }
  }
  return Median(std::move(slowest));
}

// The ranks' starts of one iteration, less their deliberate arrivals.
struct Starts {
  double first = std::numeric_limits<double>::infinity();
  double last = -std::numeric_limits<double>::infinity();
};

Starts StartsOf(const Series& series, int64_t iteration,
                const std::vector<double>& arrival_seconds) {
  Starts starts;
  for (size_t rank = 0; rank < series.start_seconds.size(); ++rank) {
    const double arrival =
        rank < arrival_seconds.size() ? arrival_seconds[rank] : 0;
    const double start = series.start_seconds[rank][iteration] - arrival;
    starts.first = std::min(starts.first, start);
    starts.last = std::max(starts.last, start);
  }
  return starts;
}

std::vector<int64_t> Above(const std::vector<double>& values, double limit) {
  std::vector<int64_t> above;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > limit) above.push_back(static_cast<int64_t>(i));
  }
  return above;
}

}  // namespace

std::vector<int64_t> MissedWindows(const Series& series,
                                   const std::vector<double>& planned_seconds,
                                   const std::vector<double>& arrival_seconds) {
  if (series.iterations() == 0) return {};
  std::vector<double> lateness;
  for (int64_t i = 0; i < series.iterations(); ++i) {
    lateness.push_back(StartsOf(series, i, arrival_seconds).last -
                       planned_seconds[i]);
  }
  return Above(lateness, std::max(kWindowTolerance,
                                  kWindowShare * MedianDuration(series)) +
                             series.clock_error_seconds);
}

std::vector<int64_t> LeftBarrierLate(
    const Series& series, const std::vector<double>& arrival_seconds) {
  if (series.iterations() == 0) return {};
  std::vector<double> spreads;
  for (int64_t i = 0; i < series.iterations(); ++i) {
    const Starts starts = StartsOf(series, i, arrival_seconds);
    spreads.push_back(starts.last - starts.first);
  }
  return Above(spreads, std::max({kBarrierFactor * Median(spreads),
                                  MedianDuration(series),
                                  2 * series.clock_error_seconds}));
}

}  // namespace rankwise::comm_bench
