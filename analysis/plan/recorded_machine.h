// What a study's records of gpt show: models, layouts and the machine they ran
// on.
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

// By the run's flags. FailedPrecondition where it is no gpt, and where the
// flags do not give the operations that were recorded.
absl::StatusOr<Model> ModelOf(const RunRecord& run);

// Whether the rank's device was the CPU.
bool RanOnCpu(const RunRecord& run);

// By the run's mesh and flags, for `global_batch` examples a step.
// FailedPrecondition names the trainer or the flag value that the planner does
// not support.
absl::StatusOr<Layout> LayoutOf(const RunRecord& run, int64_t global_batch);

// Selects the runs from which computing and communication are fitted.
struct RecordedRuns {
  // Runs of more ranks than these count only where they exchange nothing:
  // single, and ddp or fsdp with --skip_communication. Of as many ranks those
  // come before runs that communicate.
  int64_t most_exchanging_ranks = std::numeric_limits<int64_t>::max();
  ThroughputConfig throughput = {};  // which of their steps count
};

struct RecordedSize {
  // World size to plan for. Uses computing as recorded at the largest world
  // size up to it, or else at the smallest.
  int64_t ranks = std::numeric_limits<int64_t>::max();
  // Ranks that share a host; 0: the largest number in any run.
  int64_t devices_per_node = 0;
  std::string precision = {};  // of the runs, as in --precision; empty: any
};

// Seconds and work of one micro-batch of one run.
struct ComputingSample {
  const RunRecord* run = nullptr;
  int64_t micro_batch = 0;
  double seconds = 0;  // of the slowest rank, without exchanges and update
  double update_seconds = 0;
  double update_bytes = 0;
  double flops = 0;
  double kernels = 0;
  double moved_bytes = 0;
};

// From a study's records of gpt (docs/plan.md, "From records"): the times of
// products and kernels, from the steps of single, ddp and fsdp; memory
// bandwidth, from their optimizer; communication, as measured by comm_bench;
// and on CPUs the host's memory divided among its ranks. On GPUs memory_bytes
// is 0, as records do not contain it.
class RecordedMachine {
 public:
  // Reads `runs`, which outlive the machine, and fits the network.
  RecordedMachine(absl::Span<const RunTrace> runs, const RecordedRuns& which);

  // FailedPrecondition if something is missing, with the command that records
  // it, and if some runs used CPUs and others GPUs.
  absl::StatusOr<Cluster> ClusterFor(const RecordedSize& size) const;

 private:
  using SamplesByRanks = std::map<int64_t, std::vector<ComputingSample>>;

  absl::StatusOr<SamplesByRanks> SamplesOf(const std::string& precision) const;
  std::optional<double> MeasuredSpeedDuringCommunication(int64_t ranks) const;

  std::vector<ComputingSample> samples_;
  // By precision: why runs that could show computing were not used.
  std::vector<std::pair<std::string, absl::Status>> refusals_;
  absl::StatusOr<NetworkModel> network_;
  int64_t most_on_a_host_ = 1;  // ranks
  // By ranks: seconds that computing and communication together take longer
  // than computing alone, and that communication takes alone.
  std::map<int64_t, std::pair<double, double>> overlaps_;
};

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_RECORDED_MACHINE_H_
