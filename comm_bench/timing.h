// The timing engine: runs an iteration on all ranks together until its time is
// known well enough.
#ifndef RANKWISE_COMM_BENCH_TIMING_H_
#define RANKWISE_COMM_BENCH_TIMING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm_bench/control.h"

namespace rankwise {

// How ranks line up before each iteration.
enum class Sync {
  kBarrier,  // they leave a barrier
  kWindow,   // they start at an agreed time of a common clock (round-time sync:
             // Hunold and Carpen-Amarie 2018)
  kNone,     // not at all: one iteration follows the other
};

struct TimingConfig {
  // Iterations before counting starts; -1: until the median of five no longer
  // falls or moves by more than a tenth, at most max_warmup_seconds.
  int64_t warmup = -1;
  double max_warmup_seconds = 0.1;
  // Exactly so many iterations; 0: until precise or out of time.
  int64_t iterations = 0;
  int64_t min_iterations = 5;
  int64_t max_iterations = 10000;
  // Ends when the 95 % interval of the median lies within this share of it.
  double precision = 0.05;
  double max_seconds = 0.5;
  Sync sync = Sync::kBarrier;
  // Seconds by which each rank starts late on purpose; ranks beyond the end are
  // punctual.
  std::vector<double> arrival_seconds = {};
};

// Blocks until the iteration has ended on this rank.
using Iteration = std::function<void(int64_t index)>;

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
  // Iterations that are not to be counted, as a rank started late: it missed
  // its window, or left the barrier much later than the others.
  std::vector<int64_t> late;
  double clock_error_seconds = 0;  // bound of start_seconds' error
  End end = End::kCounted;

  int64_t iterations() const {
    return seconds.empty() ? 0 : static_cast<int64_t>(seconds[0].size());
  }
};

// Collective over all ranks of `control`: their configurations agree, and all
// return the same. `stop`, set by any rank, ends the series early
// (kInterrupted) with what was measured. Exceptions of `iteration` pass
// through.
Series TimeIterations(Control& control, const Iteration& iteration,
                      const TimingConfig& config,
                      const std::atomic<bool>* stop = nullptr);

}  // namespace rankwise

#endif  // RANKWISE_COMM_BENCH_TIMING_H_
