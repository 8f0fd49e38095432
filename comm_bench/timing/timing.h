// The timing engine: runs an iteration on all ranks together until its time is
// known well enough.
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

// How ranks line up before each iteration.
enum class Sync {
  kBarrier,  // they leave a barrier
  kWindow,   // they start at an agreed time of a common clock (round-time sync:
             // Hunold and Carpen-Amarie 2018)
  kNone,     // not at all: one iteration follows the other, but for a barrier
             // where samples have been exchanged
};

struct TimingConfig {
  // Iterations before counting starts; -1: until the median of five differs
  // from that of the five before by at most a tenth, or for about
  // max_warmup_seconds. Under kWindow at least one, which sizes the windows.
  int64_t warmup = -1;
  double max_warmup_seconds = 0.1;

  // A fixed number of iterations; 0: until precise or out of time.
  int64_t iterations = 0;
  int64_t min_iterations = 5;  // even when out of time
  int64_t max_iterations = 10000;
  // What the median is of.
  Across across = Across::kSlowest;
  // Ends when the 95 % interval of the median, of at least 42 iterations
  // without the late ones, lies within this share of the median on both sides.
  double precision = 0.05;
  double max_seconds = 0.5;  // without the warm-up

  Sync sync = Sync::kBarrier;
  // Seconds by which each rank starts late on purpose; ranks beyond the end are
  // punctual.
  std::vector<double> arrival_seconds = {};
  // Runs on each rank before it lines up for an iteration, outside the time
  // measured; may be empty.
  std::function<void()> before_each = nullptr;
  // Seconds of the iteration that has just ended, where its iteration measures
  // them itself (on a device's clock); null: those that it took on the host's
  // clock. The starts are the host's either way.
  std::function<double()> own_seconds = nullptr;
  // Where this rank's iterations keep an error that must end the series on all
  // ranks; null: nowhere.
  const absl::Status* failure = nullptr;
};

// Blocks until the iteration has ended on this rank. `index` counts from 0,
// warm-up included.
using Iteration = std::function<void(int64_t index)>;

// Collective over all ranks of `control`: their configurations agree, and all
// return the same but for their own samples. Ranks reduce their samples in
// growing batches of at most about 0.2 s, outside the times measured, and
// decide from the same data. `stop`, set by any rank, ends the series at the
// end of a batch (kInterrupted) with what was measured. `clock.now` may differ
// from the steady clock by its origin and by drift. Exceptions of `iteration`
// pass through.
Series TimeIterations(Control& control, const Iteration& iteration,
                      const TimingConfig& config,
                      const std::atomic<bool>* stop = nullptr,
                      const RankClock& clock = HostClock());

// Whether a warm-up is over: the median of the last five values differs from
// that of the five before by at most a tenth of the latter. False below ten.
bool IsStable(const std::vector<double>& values);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_TIMING_H_
