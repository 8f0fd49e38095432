// What the timing engine is to do.
#ifndef RANKWISE_COMM_BENCH_TIMING_TIMING_CONFIG_H_
#define RANKWISE_COMM_BENCH_TIMING_TIMING_CONFIG_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "comm_bench/timing/across.h"

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
  // Exactly so many iterations; 0: until precise or out of time.
  int64_t iterations = 0;
  int64_t min_iterations = 5;  // even when out of time
  int64_t max_iterations = 10000;
  // What the median is of.
  Across across = Across::kSlowest;
  // Ends when the 95 % interval of the median, which takes six iterations that
  // count, lies within this share of it to both sides.
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
};

// Blocks until the iteration has ended on this rank. `index` counts from 0,
// warm-up included.
using Iteration = std::function<void(int64_t index)>;

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_TIMING_CONFIG_H_
