// The timing engine: runs iterations on all ranks together until their duration
// is known with the requested precision.
#ifndef RANKWISE_COMM_BENCH_TIMING_TIMING_H_
#define RANKWISE_COMM_BENCH_TIMING_TIMING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "comm_bench/timing/series.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// Synchronization of ranks before each iteration.
enum class Sync {
  kBarrier,  // leaving a barrier
  kWindow,   // start at an agreed time of a common clock (round-time
             // synchronization: Hunold and Carpen-Amarie 2018)
  kNone,     // no synchronization: successive iterations, except for a barrier
             // after samples are exchanged
};

struct TimingConfig {
  // Uncounted iterations; if -1, until the median of five differs from that of
  // the previous five by at most a tenth, or for about max_warmup_seconds. At
  // least one under kWindow, to size the windows.
  int64_t warmup = -1;
  double max_warmup_seconds = 0.1;

  // number of iterations; 0 to continue until precise or out of time
  int64_t iterations = 0;
  int64_t min_iterations = 5;  // even if out of time
  int64_t max_iterations = 10000;
  // combination of the ranks' times whose median is measured
  Across across = Across::kSlowest;
  // The series ends when both sides of the 95 % interval of the median, of at
  // least 42 iterations that are not late, lie within this share of the median.
  double precision = 0.05;
  double max_seconds = 0.5;  // excluding the warm-up

  Sync sync = Sync::kBarrier;
  // Deliberate delay of each rank's start in seconds; ranks beyond the end are
  // not delayed.
  std::vector<double> arrival_seconds = {};
  // Called on each rank before it synchronizes for an iteration, outside the
  // measured time; may be empty.
  std::function<void()> before_each = nullptr;
  // Returns the duration of the iteration that just ended, if the iteration
  // measures itself (on a device's clock); if empty, the host's clock is used.
  // Starts are always on the host's clock.
  std::function<double()> own_seconds = nullptr;
  // Error of this rank's iterations that must end the series on all ranks; may
  // be nullptr.
  const absl::Status* failure = nullptr;
};

// Blocks until the iteration has ended on this rank. `index` counts from 0,
// including warm-up.
using Iteration = std::function<void(int64_t index)>;

// Collective over all ranks of `control`, with equal configurations; all return
// the same except for their own samples. Ranks reduce their samples in growing
// batches of at most about 0.2 s, outside the measured times, and decide from
// the same data. `stop`, set by any rank, ends the series after a batch
// (kInterrupted) with the results so far. `clock.now` may differ from the
// steady clock by its origin and by drift. Propagates exceptions of
// `iteration`.
Series TimeIterations(Control& control, const Iteration& iteration,
                      const TimingConfig& config,
                      const std::atomic<bool>* stop = nullptr,
                      const RankClock& clock = HostClock());

// Whether a warm-up is complete: the median of the last five values differs
// from that of the previous five by at most a tenth of the latter. False for
// fewer than ten.
bool IsStable(const std::vector<double>& values);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_TIMING_H_
