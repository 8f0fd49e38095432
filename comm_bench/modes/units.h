// A step of sharded data parallelism (ZeRO 1 to 3) without the model: its
// all-gathers and reduce-scatters, unit by unit, with a given amount of
// computation.
#ifndef RANKWISE_COMM_BENCH_MODES_UNITS_H_
#define RANKWISE_COMM_BENCH_MODES_UNITS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm_bench/collectives/collective.h"
#include "comm_bench/timing/series.h"
#include "parallel/comm/control.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// Parameters that are gathered and reduced together, such as a block of a
// transformer. Each of `ranks` has an equal part.
struct Unit {
  Call gather, reduce;         // of the whole unit
  double compute_seconds = 0;  // forward; backward takes twice as long
};

struct UnitsConfig {
  int stage = 3;            // ZeRO stage
  int prefetch = 1;         // units gathered ahead; compared with 0
  int64_t gemm_size = 512;  // rows and columns of the matrix products
  int64_t iterations = 20;  // of each way
  // Computes for the given number of seconds; if empty, by at least one whole
  // matrix product.
  std::function<void(double seconds)> compute = nullptr;
};

// One way to run the step: with `prefetch` units gathered ahead or, for -1,
// computation alone.
struct UnitsWay {
  int prefetch = 0;
  CollectiveRecord own;  // this rank's samples, seconds per step
  Estimate step;         // of each iteration's slowest rank
};

// Equal on every rank, except for the samples and sent_bytes.
struct UnitsResult {
  // computation alone, prefetch 0, and the configured one
  std::vector<UnitsWay> ways;
  int64_t iterations = 0;  // of each way
  double sent_bytes = 0;   // by this rank per step
  bool stopped = false;    // stopped by `stop`
};

// Runs the step in all ways in turn, in the order of UnitOrder, which
// FullyShardedDataParallel executes, too. Allocates and frees buffers with each
// call, like the engine. Collective over all ranks of `control`, those of
// `group`. `units` must not be empty. If `stop` is set on any rank, returns
// early with the iterations measured so far, possibly none. Throws the
// exceptions of failed calls.
UnitsResult RunUnits(c10d::ProcessGroup& group, Control& control,
                     const std::vector<Unit>& units, const UnitsConfig& config,
                     const std::atomic<bool>* stop = nullptr);

// Seconds of a unit's two calls alone.
struct UnitTimes {
  double gather = 0, reduce = 0;
};

// Returns tables in milliseconds: of `alone`, unit by unit, and of the steps.
std::string FormatUnits(const std::vector<Unit>& units,
                        const std::vector<UnitTimes>& alone,
                        const UnitsConfig& config, const UnitsResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_UNITS_H_
