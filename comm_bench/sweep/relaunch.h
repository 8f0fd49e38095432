// Several launches of all ranks of a job: each row's time over them, and how
// much it varies between launches and within one.
#ifndef RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_
#define RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm_bench/sweep/config.h"
#include "parallel/launch/launcher.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// Starts this binary's ranks `config.relaunch` times with the same arguments,
// one launch after the other, and prints each row's time over the launches.
// Returns main's exit code: the first that is not 0.
int Relaunch(const BenchConfig& config, const LaunchConfig& launch, int argc,
             char** argv);

// Of one row. A launch's samples are the times of a call of each iteration's
// slowest rank, without late iterations.
struct LaunchSpread {
  CallDescription call;  // what was measured
  // Ascending, with each launch's median; launches without a sample are left
  // out.
  std::vector<int64_t> launches;
  std::vector<double> median_seconds;
  // Geometric mean of the medians, and its 95 % interval: Student's on their
  // logarithms, a launch being one observation. Iterations of a launch are not
  // independent: what drifts within it would make an interval over them too
  // narrow. NaN: fewer than two launches.
  double seconds = 0;
  double low_seconds = 0, high_seconds = 0;
  double spread = 0;     // largest median / smallest median - 1
  double deviation = 0;  // of the medians: standard deviation / mean
  double within = 0;     // median over launches of interquartile range / median
};

// One for each row that has samples, in the order of `records`, which are of
// all ranks and launches. What launches measured several times is as many rows.
// InvalidArgument: ranks of a launch have different numbers of iterations, or
// launches have different numbers of ranks.
absl::StatusOr<std::vector<LaunchSpread>> CompareLaunches(
    absl::Span<const CollectiveRecord> records);

// A table, one line per row. "" without rows.
std::string FormatLaunches(absl::Span<const LaunchSpread> rows);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_
