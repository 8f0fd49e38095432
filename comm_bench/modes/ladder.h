// The ladder: reduces one payload through successively more layers, and shows
// the cost of each layer.
#ifndef RANKWISE_COMM_BENCH_MODES_LADDER_H_
#define RANKWISE_COMM_BENCH_MODES_LADDER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm_bench/timing/timing.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "records/record.h"

namespace rankwise::comm_bench {

struct LadderRung {
  // From the bottom:
  // "nccl"       over NCCL: ncclAllReduce of nccl.h, with a separate
  //              communicator;
  // "mpi"        over MPI: MPI_Allreduce of mpi.h, likewise;
  // "messages"   the backend's send and recv, log2(ranks) of each (recursive
  //              doubling), and the sums: the minimum for an all-reduce;
  // "backend"    the backend's all-reduce;
  // "c10d"       ProcessGroup::allreduce, with PyTorch's dispatcher;
  // "monitored"  the trainers' process group, which logs its calls;
  // "backward"   no layer: a backward that only accumulates a given gradient
  //              into one parameter, under DDP without sync;
  // "reducer"    the same with sync: one bucket, from BeforeForward to
  //              AfterBackward.
  std::string name;
  Summary time;
  double mean_seconds = 0;  // shows a few slow calls among many
  // Median in excess of the rung below; for the reducer, of the backward. NaN
  // without a rung to compare with.
  double adds_seconds = 0;
  // Reach of its 95 % interval (Difference in series.h); NaN without one.
  double adds_reach_seconds = 0;
  Series series;  // this rung's iterations
};

struct LadderResult {
  std::string backend;  // "gloo"
  int64_t bytes = 0;    // of float32
  int world_size = 1;
  std::vector<LadderRung> rungs;  // rungs with samples
  bool stopped = false;           // stopped by `stop`
  bool events = false;            // times are by the device's events
};

// Runs all-reduces of `bytes` (rounded up to whole float32) by every rung in
// turn, round after round, so that disturbances affect all rungs equally.
// Each rung has config.iterations iterations (200 if 0) after config.warmup
// uncounted ones (20 if -1). Collective over all ranks of `comm`, which are
// those of `control`; all return the same. `stop`, set on any rank, ends it
// early with the results so far. With `events`, seconds are between two events
// of the device's stream around a rung's work; otherwise the host's, until the
// device is done. Does not support a backend that simulates its peers. Internal
// if a rung's result is wrong; failed collectives throw.
absl::StatusOr<LadderResult> RunLadder(Communicator& comm, Control& control,
                                       int64_t bytes,
                                       const TimingConfig& config,
                                       const std::atomic<bool>* stop = nullptr,
                                       bool events = false);

// Describes the calls whose samples are a rung's iterations.
CallDescription DescribeRung(const LadderResult& ladder,
                             const LadderRung& rung);

// Returns a table in microseconds, times of the slowest rank.
std::string FormatLadder(const LadderResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_LADDER_H_
