// Measures one row: a collective of one shape, checked and timed.
#ifndef RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
#define RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/nccl/calls.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_log_switch.h"
#include "comm_bench/output/row.h"
#include "comm_bench/timing/timing.h"
#include "parallel/comm/control.h"
#include "parallel/device/graph.h"
#include "records/record.h"

namespace rankwise::comm_bench {

struct MeasureConfig {
  TimingConfig timing;
  int in_flight = 1;  // calls started before the first is waited for
  bool cold = false;  // caches are overwritten before each iteration
  bool check = true;
  int launch = 0;
  // Seconds are those between two moments of the device's stream, not the
  // host's.
  bool events = false;
  bool graph = false;       // calls are recorded, and iterations replay them
  bool registered = false;  // buffers are registered by the layer's library
  // What NCCL chooses is asked for, by `nccl_log` on the ranks that have one.
  // The same on all ranks.
  bool choices = false;
  NcclLogSwitch* nccl_log = nullptr;
  GraphMaker make_graph = MakeDeviceGraph;
};

struct Measurement {
  Row row;                   // the same on every rank
  CollectiveRecord samples;  // of this rank
  // The first wrong element of any rank, as a sentence; empty: none, or not
  // checked.
  std::string wrong;
};

// From a series: the row's times, and rank `rank`'s samples. An iteration makes
// `calls` calls, each after the other or at the same time; busbw is algbw times
// `bus_factor`.
Measurement Assemble(Row row, const Series& series, int rank, double calls,
                     double bus_factor, const MeasureConfig& config);

// Collective over all ranks of `control`. `layer` is of this rank's group: that
// of all ranks, or one of several whose ranks are disjoint, which then run at
// the same time; `ranks` are the group's, as ranks of the job (empty: all).
// Fails on all ranks where on one calls cannot be recorded or buffers not be
// registered, each rank with its own reason. Throws what a failed call throws.
absl::StatusOr<Measurement> MeasureRow(Layer& layer, Control& control,
                                       const Collective& collective,
                                       const Call& call,
                                       const std::vector<int>& ranks,
                                       const MeasureConfig& config,
                                       const std::atomic<bool>* stop = nullptr);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
