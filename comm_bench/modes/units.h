// A step of sharded data parallelism (ZeRO 1 to 3) without the model: its
// all-gathers and reduce-scatters, unit by unit, next to as much computing as
// is asked for.
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
// transformer. Each of `ranks` has an equal part of them.
struct Unit {
  Call gather, reduce;         // of the whole unit
  double compute_seconds = 0;  // of its forward; its backward takes twice that
};

struct UnitsConfig {
  int stage = 3;            // of ZeRO
  int prefetch = 1;         // units that are gathered ahead; measured next to 0
  int64_t gemm_size = 512;  // rows and columns of the products that compute
  int64_t iterations = 20;  // of each way
  // Computes for as many seconds; null: by matrix products, rounded to whole
  // ones, at least one.
  std::function<void(double seconds)> compute = nullptr;
};

// One way of running the step: with `prefetch` units gathered ahead, or, with
// -1, its computing alone.
struct UnitsWay {
  int prefetch = 0;
  CollectiveRecord own;  // this rank's samples, seconds of a step
  Estimate step;         // of the slowest rank of each iteration
};

// The same on every rank, but for the samples and what a rank sends, which are
// its own.
struct UnitsResult {
  std::vector<UnitsWay> ways;  // computing alone, prefetch 0, and config's
  int64_t iterations = 0;      // of each way
  double sent_bytes = 0;       // by this rank in a step
  bool stopped = false;        // by `stop`
};

// Runs the step in all ways in turn, in the order of UnitOrder, which
// FullyShardedDataParallel executes too. Buffers are allocated and freed with
// each call, as the engine does. Collective over all ranks of `control`, those
// of `group`. `units` must not be empty. If `stop` is set on any rank, returns
// early with the iterations measured so far, possibly none. Throws what a
// failed call throws.
UnitsResult RunUnits(c10d::ProcessGroup& group, Control& control,
                     const std::vector<Unit>& units, const UnitsConfig& config,
                     const std::atomic<bool>* stop = nullptr);

// Seconds that the two calls of a unit take by themselves.
struct UnitTimes {
  double gather = 0, reduce = 0;
};

// Tables in milliseconds: of `alone`, unit by unit, and of the steps.
std::string FormatUnits(const std::vector<Unit>& units,
                        const std::vector<UnitTimes>& alone,
                        const UnitsConfig& config, const UnitsResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_UNITS_H_
