// Builds a series from samples of several ranks.
#ifndef RANKWISE_COMM_BENCH_TIMING_SERIES_FOR_TEST_H_
#define RANKWISE_COMM_BENCH_TIMING_SERIES_FOR_TEST_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "comm_bench/timing/series.h"

namespace rankwise::comm_bench {

inline Extent ExtentOfRanks(
    const std::vector<std::vector<double>>& seconds,
    const std::vector<std::vector<double>>& start_seconds,
    const std::vector<double>& arrival_seconds, size_t i) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Extent extent = {kInfinity, -kInfinity, -kInfinity, kInfinity, -kInfinity};
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    const double start = start_seconds[rank][i], duration = seconds[rank][i];
    const double undelayed =
        start - (rank < arrival_seconds.size() ? arrival_seconds[rank] : 0);
    extent.first_start = std::min(extent.first_start, start);
    extent.last_start = std::max(extent.last_start, start);
    extent.last_end = std::max(extent.last_end, start + duration);
    extent.first_undelayed_start =
        std::min(extent.first_undelayed_start, undelayed);
    extent.last_undelayed_start =
        std::max(extent.last_undelayed_start, undelayed);
    extent.slowest_seconds = std::max(extent.slowest_seconds, duration);
    extent.mean_seconds += duration / static_cast<double>(seconds.size());
  }
  return extent;
}

// `seconds` and `start_seconds` are [rank][iteration]; ranks beyond the end of
// `arrival_seconds` are not delayed.
inline Series SeriesOfRanks(
    const std::vector<std::vector<double>>& seconds,
    const std::vector<std::vector<double>>& start_seconds,
    const std::vector<double>& arrival_seconds = {}) {
  Series series;
  for (size_t i = 0; !seconds.empty() && i < seconds[0].size(); ++i) {
    series.extents.push_back(
        ExtentOfRanks(seconds, start_seconds, arrival_seconds, i));
  }
  return series;
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_SERIES_FOR_TEST_H_
