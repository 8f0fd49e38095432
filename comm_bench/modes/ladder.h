// The ladder: one payload reduced through ever more layers, and what each layer
// adds.
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
  // "nccl"       over NCCL: ncclAllReduce of nccl.h itself, by a communicator
  //              of its own;
  // "mpi"        over MPI: MPI_Allreduce of mpi.h itself, likewise;
  // "messages"   the backend's send and recv, log2(ranks) of each (recursive
  //              doubling), and the sums: what an all-reduce needs at least;
  // "backend"    the backend's all-reduce;
  // "c10d"       ProcessGroup::allreduce, PyTorch's dispatcher, over it;
  // "monitored"  the trainers' process group, which logs what it passes on;
  // "backward"   no layer: a backward that only accumulates a given gradient
  //              into one parameter, under DDP without sync;
  // "reducer"    the same with sync: one bucket, from BeforeForward to
  //              AfterBackward.
  std::string name;
  Summary time;
  double mean_seconds = 0;  // a few slow calls of many show here
  // Seconds of the median beyond the rung below; the reducer's without the
  // backward. NaN where there is nothing to compare with.
  double adds_seconds = 0;
  // How far its 95 % interval reaches (Difference in series.h); NaN
  // where there is none.
  double adds_reach_seconds = 0;
  Series series;  // of this rung's iterations
};

struct LadderResult {
  std::string backend;  // "gloo"
  int64_t bytes = 0;    // of float32
  int world_size = 1;
  std::vector<LadderRung> rungs;  // that have samples
  bool stopped = false;           // by `stop`
  bool events = false;            // times are of the device's events
};

// All-reduces of `bytes` (rounded up to whole float32) by every rung in turn,
// round after round, so that what disturbs the machine disturbs all alike.
// config.iterations are those of each rung, 0: 200; config.warmup likewise, -1:
// 20. Collective over all ranks of `comm`, which are those of `control`; all
// return the same. `stop`, set on any rank, ends it early with what was
// measured. `events`: seconds are those between two events of the device's
// stream around a rung's work; else the host's, until the device is done.
// Not over a backend that pretends its peers. Internal if a rung's result is
// wrong; failed collectives throw.
absl::StatusOr<LadderResult> RunLadder(Communicator& comm, Control& control,
                                       int64_t bytes,
                                       const TimingConfig& config,
                                       const std::atomic<bool>* stop = nullptr,
                                       bool events = false);

// What a rung's iterations are samples of.
CallDescription DescribeRung(const LadderResult& ladder,
                             const LadderRung& rung);

// A table in microseconds, times of the slowest rank.
std::string FormatLadder(const LadderResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_LADDER_H_
