// Repeated launches of all ranks of a job: each row's time over the launches,
// and its variation between launches and within one.
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

// Launches this binary's ranks `config.relaunch` times with the same arguments,
// one launch after the other, and prints each row's time over the launches.
// Returns main's exit code: the first that is not 0.
int Relaunch(const BenchConfig& config, const LaunchConfig& launch, int argc,
             char** argv);

// Statistics of one row. A launch's samples are the slowest rank's call times
// of the iterations that are not late.
struct LaunchSpread {
  CallDescription call;  // what was measured
  // Ascending, with each launch's median; excludes launches without samples.
  std::vector<int64_t> launches;
  std::vector<double> median_seconds;
  // Geometric mean of the medians, and its 95 % interval: Student's t on their
  // logarithms, with one observation per launch. Iterations of a launch are not
  // independent: drift within it would make an interval over iterations too
  // narrow. NaN for fewer than two launches.
  double seconds = 0;
  double low_seconds = 0, high_seconds = 0;
  double spread = 0;     // largest median / smallest median - 1
  double deviation = 0;  // of the medians: standard deviation / mean
  double within = 0;     // median over launches of interquartile range / median
};

// Returns one entry per row with samples, in the order of `records`, which are
// of all ranks and launches. Repeated measurements of a launch are separate
// rows. InvalidArgument if ranks of a launch have different numbers of
// iterations, or launches have different numbers of ranks.
absl::StatusOr<std::vector<LaunchSpread>> CompareLaunches(
    absl::Span<const CollectiveRecord> records);

// Returns a table with one line per row; "" without rows.
std::string FormatLaunches(absl::Span<const LaunchSpread> rows);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_
