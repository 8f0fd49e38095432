// What the timing engine measures.
#ifndef RANKWISE_COMM_BENCH_TIMING_SERIES_H_
#define RANKWISE_COMM_BENCH_TIMING_SERIES_H_

#include <cstdint>
#include <vector>

namespace rankwise::comm_bench {

// The raw samples of all ranks: the same on every rank.
struct Series {
  enum class End {
    kCounted,
    kPrecise,
    kOutOfTime,
    kMaxIterations,
    kInterrupted
  };

  std::vector<std::vector<double>> seconds;  // [rank][iteration]
  // On rank 0's clock, since the earliest start of all; [rank][iteration].
  std::vector<std::vector<double>> start_seconds;
  // Iterations that are not to be counted, as a rank started late
  // (late_starts.h); ascending.
  std::vector<int64_t> late;
  double clock_error_seconds = 0;  // bound of start_seconds' error
  End end = End::kCounted;

  int64_t iterations() const {
    return seconds.empty() ? 0 : static_cast<int64_t>(seconds[0].size());
  }
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_SERIES_H_
