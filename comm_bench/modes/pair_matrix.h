// Latency and bandwidth between all pairs of ranks, and detection of a slow
// rank.
#ifndef RANKWISE_COMM_BENCH_MODES_PAIR_MATRIX_H_
#define RANKWISE_COMM_BENCH_MODES_PAIR_MATRIX_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "c10/core/Device.h"
#include "parallel/comm/control.h"
#include "records/record.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise::comm_bench {

struct PairConfig {
  int64_t latency_bytes = 8;
  int64_t bandwidth_bytes = 1 << 20;
  int64_t warmup = 3;              // uncounted round trips per size
  int64_t iterations = 20;         // counted round trips per size
  c10::Device device = c10::kCPU;  // device of the messages
};

// [i][j] and [j][i] are equal; NaN on the diagonal and for unmeasured pairs.
struct PairMatrix {
  std::vector<std::vector<double>> latency_seconds;     // half round trip
  std::vector<std::vector<double>> bandwidth_gb_per_s;  // decimal GB
  // Distances of the values to the farther ends of their 95 % intervals,
  // relative to the values; NaN below kFewestForInterval round trips.
  std::vector<std::vector<double>> latency_reach, bandwidth_reach;
  // round trips timed by this rank: one record per higher rank and size
  std::vector<CollectiveRecord> samples = {};
  int pairs = 0;         // number of measured pairs
  bool stopped = false;  // stopped by `stop`

  int world_size() const { return static_cast<int>(latency_seconds.size()); }
};

struct RankPair {
  int low = 0, high = 0;  // ranks
};

// Returns every pair of ranks once, in the minimum number of rounds of disjoint
// pairs.
std::vector<std::vector<RankPair>> RoundsOfPairs(int world_size);

// Runs ping-pongs by send and recv over `group`, concurrently for the pairs of
// a round, round after round, timed on the lower rank: medians over iterations.
// Collective over all ranks, with the same configuration; the matrices, `pairs`
// and `stopped` are equal on all. `stop`, set by any rank, ends it after the
// current round. Propagates exceptions of send and recv.
PairMatrix MeasurePairs(c10d::ProcessGroup& group, Control& control,
                        const PairConfig& config,
                        const std::atomic<bool>* stop = nullptr);

// Returns the record of successive round trips of `bytes` between `rank` and
// `peer`, timed by `rank`.
CollectiveRecord RoundTrips(int rank, int peer, int64_t bytes,
                            std::vector<double> seconds);

struct Straggler {
  int rank = 0;
  // median latency of its pairs minus that of the others
  double delay_seconds = 0;
};

// Returns the rank all of whose pairs have at least 1.5 times the median
// latency of the pairs without it; nullopt without such a rank, or below three
// ranks, where there is no other pair.
std::optional<Straggler> FindStraggler(const PairMatrix& matrix);

// Returns two tables for the terminal, with a row and a column per rank.
std::string FormatPairMatrix(const PairMatrix& matrix);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_PAIR_MATRIX_H_
