// Latency and bandwidth between all pairs of ranks, and who stands out.
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
  int64_t warmup = 3;       // round trips before counting starts, per size
  int64_t iterations = 20;  // round trips that count, per size
  c10::Device device = c10::kCPU;  // of the messages
};

// [i][j] and [j][i] are the same; NaN on the diagonal and for pairs that were
// not reached.
struct PairMatrix {
  std::vector<std::vector<double>> latency_seconds;     // half round trip
  std::vector<std::vector<double>> bandwidth_gb_per_s;  // decimal GB
  // 95 % intervals of both: how far they reach to their farther side, as a
  // share; NaN below six round trips.
  std::vector<std::vector<double>> latency_reach, bandwidth_reach;
  // The round trips that this rank timed: with each higher rank, per size.
  std::vector<CollectiveRecord> samples = {};
  int pairs = 0;         // that were measured
  bool stopped = false;  // by `stop`

  int world_size() const { return static_cast<int>(latency_seconds.size()); }
};

struct RankPair {
  int low = 0, high = 0;  // ranks
};

// Every pair of ranks once, in as few rounds as there can be of pairs that have
// no rank in common.
std::vector<std::vector<RankPair>> RoundsOfPairs(int world_size);

// Ping-pongs by send and recv over `group`, the pairs of a round at the same
// time and one round after the other, timed on the lower rank: medians over
// iterations. Collective over all ranks, with the same configuration; the
// matrices, `pairs` and `stopped` are the same on all. `stop`, set by any rank,
// ends it after the round under way. What send and recv throw passes through.
PairMatrix MeasurePairs(c10d::ProcessGroup& group, Control& control,
                        const PairConfig& config,
                        const std::atomic<bool>* stop = nullptr);

// Round trips of `bytes` between rank `rank` and `peer`, one following the
// other, timed by `rank`.
CollectiveRecord RoundTrips(int rank, int peer, int64_t bytes,
                            std::vector<double> seconds);

struct Straggler {
  int rank = 0;
  // The median latency of its pairs, less that of the others.
  double delay_seconds = 0;
};

// The rank all of whose pairs take at least 1.5 times the median latency of the
// pairs without it; none when nobody stands out so, or below three ranks, where
// there is no pair to compare with.
std::optional<Straggler> FindStraggler(const PairMatrix& matrix);

// Two tables for the terminal, a row and a column per rank.
std::string FormatPairMatrix(const PairMatrix& matrix);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_PAIR_MATRIX_H_
