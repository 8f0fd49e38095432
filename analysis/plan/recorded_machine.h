// Models, layouts and the machine of a study's records of gpt.
#ifndef RANKWISE_ANALYSIS_PLAN_RECORDED_MACHINE_H_
#define RANKWISE_ANALYSIS_PLAN_RECORDED_MACHINE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/plan/cluster.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "records/record.h"

namespace rankwise::plan {

// Returns the model of the run's flags. FailedPrecondition if it is not gpt, or
// if the flags do not match the recorded operations.
absl::StatusOr<Model> ModelOf(const RunRecord& run);

// Whether the rank's device was the CPU.
bool RanOnCpu(const RunRecord& run);

// Returns the layout of the run's mesh and flags, for `global_batch` examples
// per step. FailedPrecondition names the trainer or the flag value that the
// planner does not support.
absl::StatusOr<Layout> LayoutOf(const RunRecord& run, int64_t global_batch);

// Selects the runs to which computation and communication are fitted.
struct RecordedRuns {
  // Runs of more ranks are used only without communication: single, and ddp or
  // fsdp with --skip_communication. At the same number of ranks, those take
  // precedence over runs with communication.
  int64_t most_exchanging_ranks = std::numeric_limits<int64_t>::max();
  ThroughputConfig throughput = {};  // selects their steps
};

struct RecordedSize {
  // World size to plan for. Uses the computation recorded at the largest world
  // size up to it, or else at the smallest.
  int64_t ranks = std::numeric_limits<int64_t>::max();
  // ranks per host; 0 for the largest number in any run
  int64_t devices_per_node = 0;
  std::string precision = {};  // of the runs, as in --precision; "" for any
};

// Duration and work of one micro-batch of one run.
struct ComputingSample {
  const RunRecord* run = nullptr;
  int64_t micro_batch = 0;
  double seconds = 0;  // of the slowest rank, without communication and update
  double update_seconds = 0;
  double update_bytes = 0;
  double flops = 0;
  double kernels = 0;
  double moved_bytes = 0;
};

// The machine of a study's records of gpt (docs/plan.md, "From records"):
// durations of products and kernels, from the steps of single, ddp and fsdp;
// memory bandwidth, from their optimizer; communication, from comm_bench; and
// on CPUs the host's memory divided among its ranks. On GPUs memory_bytes is 0,
// as records do not contain it.
class RecordedMachine {
 public:
  // Reads `runs`, which must outlive the machine, and fits the network.
  RecordedMachine(absl::Span<const RunTrace> runs, const RecordedRuns& which);

  // FailedPrecondition if a measurement is missing, with the command that
  // records it, or if some runs used CPUs and others GPUs.
  absl::StatusOr<Cluster> ClusterFor(const RecordedSize& size) const;

 private:
  using SamplesByRanks = std::map<int64_t, std::vector<ComputingSample>>;

  absl::StatusOr<SamplesByRanks> SamplesOf(const std::string& precision) const;
  std::optional<double> MeasuredSpeedDuringCommunication(int64_t ranks) const;

  std::vector<ComputingSample> samples_;
  // by precision: why runs that could have provided computation were not used
  std::vector<std::pair<std::string, absl::Status>> refusals_;
  absl::StatusOr<NetworkModel> network_;
  int64_t most_on_a_host_ = 1;  // ranks
  // By ranks: excess of computation with communication over computation alone,
  // and duration of communication alone, in seconds.
  std::map<int64_t, std::pair<double, double>> overlaps_;
};

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_RECORDED_MACHINE_H_
