// One configuration of a study with its repetitions.
#ifndef RANKWISE_ANALYSIS_RUNS_CELL_H_
#define RANKWISE_ANALYSIS_RUNS_CELL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "records/example_unit.h"
#include "records/record.h"

namespace rankwise {

struct Cell {
  // Rank 0's of the first repetition. In world_size replicas of one process
  // count as ranks: each has a device, and threads_per_rank threads.
  RunRecord run;
  int64_t global_batch = 0;
  double rank_batch = 0;  // Throughput::largest_rank_batch
  int64_t hosts = 1;      // that the ranks were on
  std::vector<Throughput> repetitions;
  // Of each repetition, its place among the runs given to GroupIntoCells.
  std::vector<size_t> run_indices;
  // One per repetition that has schedule records in order, without them none.
  std::vector<PipelineUse> pipelines;
  // A device other than the CPU that two ranks of one host used, or "". Where a
  // rank's environment record holds CUDA_VISIBLE_DEVICES, its "cuda:0" is the
  // first GPU that this names.
  std::string shared_device;
  // Ranks of one host had more threads than the cores they may run on: those of
  // their environment records, or without these the host's.
  bool oversubscribed = false;
  // A rank, or a replica, worked with more than one device.
  bool several_devices_per_rank = false;
  // Of all ranks of the repetitions, in order, each once: "cpu", "cuda:1".
  std::vector<std::string> devices;
  // Of one device: that --peak_tflops states, or else the best that a
  // repetition measured (--peak), or a run of another cell on the same host and
  // device, with the same precision, threads and torch; 0: neither, or the
  // repetitions state several.
  double peak_tflops = 0;
  bool peak_is_measured = false;
  double peak_bytes_per_second = 0;  // likewise, measured; 0: not known
  // CodeVersion of the repetitions' ranks, each once.
  std::vector<std::string> code_versions;
  // Median over the repetitions in which it is known of PeakBytes; 0: in none.
  double peak_bytes = 0;

  // Of the rank that held most by kind, in the first repetition of which that
  // is known (docs/memory.md); none: in none.
  std::optional<MemoryRecord> memory;

  // One value of `metric` per repetition.
  std::vector<double> Values(double Throughput::*metric) const;
  // Geometric mean over the repetitions, as ratios of cells have intervals
  // about those of geometric means.
  double ExamplesPerSecond() const;
  // "ddp", "pipeline 1f1b"; with the mesh where the trainer has a choice of it:
  // "hybrid pp2xtp2 1f1b".
  std::string Trainer() const;
  // "pipeline 1f1b on 2 ranks", "ddp on 4 ranks of 2 hosts"
  std::string Name() const;
  // Communication was left out (--skip_communication): explains other cells,
  // and is compared with none.
  bool IsAblation() const;
};

// The most bytes that a rank held: of its accelerators where it used any, else
// of the host. 0: not recorded.
double PeakBytes(const RankTrace& rank);
// That of the run's fullest rank. 0: some rank did not record it.
double PeakBytes(const RunTrace& run);

// All kinds together; 0: not known.
int64_t TotalBytes(const MemoryParts& parts);

// "cpu", or "cuda" for "cuda:1"; "" without devices.
std::string DeviceKind(const RunRecord& run);

// The kinds of CPU that the ranks ran on, each once: "A" or "A and B".
std::string CpuModels(const RunTrace& run);

// "source 0123456789abcdef with torch 2.11.0", the same for the same code; or
// kUnknownCode.
std::string CodeVersion(const RunRecord& run);
inline constexpr char kUnknownCode[] = "unknown code";

// Why runs of these CodeVersions cannot be taken for repetitions of each other,
// "ran different code (A, B)"; "" where all are of one known code.
std::string WhyNotOneCode(absl::Span<const std::string> versions);

// "commit c0ffee012345 (modified)", "an unknown commit"
std::string CommitText(const RunRecord& run);

// Whether a flag follows the world size without following from it: accumulate,
// cp, devices, dp, microbatches, pp, replicas, servers, split, tp.
bool IsShapeFlag(absl::string_view name);

// "32", "21.3": examples per rank need not be whole in a pipeline.
std::string BatchText(double examples);

struct MeasuredRun {
  size_t index = 0;  // of the run
  Throughput throughput;
};

// Returns the runs that can be measured, except those of comm_bench. Parts of
// one job (JobsOf) in one configuration are one repetition: the part with the
// most steps after warm-up. Appends to `left_out` why other runs are left out.
std::vector<MeasuredRun> MeasureRuns(absl::Span<const RunTrace> runs,
                                     const ThroughputConfig& config,
                                     std::vector<std::string>* left_out);

// Groups MeasureRuns() into cells by trainer, world size, hosts, batch and its
// division into micro-batches, replicas and stages, threads, the kinds of CPU
// and of device, the backend, and the flags that do not follow the world size.
// The order is "single" first, then by trainer, world size and batch. Appends
// to `left_out` why a run is left out, or has no PipelineUse in spite of
// schedule records.
std::vector<Cell> GroupIntoCells(absl::Span<const RunTrace> runs,
                                 const ThroughputConfig& config,
                                 std::vector<std::string>* left_out);

ExampleUnit UnitOf(const RunRecord& run);

// The unit of one table's rates: that of all its cells, or examples where they
// differ.
class RateColumn {
 public:
  explicit RateColumn(absl::Span<const Cell> cells);

  const std::string& name() const { return name_; }  // "tokens/s"
  double Of(const Cell& cell, double examples_per_second) const;

 private:
  std::string name_;
};

// MFU of docs/metrics.md: model FLOPs utilisation (Chowdhery et al. 2022,
// "PaLM", appendix B) against Cell::peak_tflops. NaN if the runs do not record
// the model's operations or have no peak, and if they computed faster than a
// measured peak, which was therefore measured too low.
double ModelFlopsUtilization(const Cell& cell);

// "ddp on 2 ranks (1.53 times the measured 0.112 TFLOPS)" if the cell computed
// faster than its measured peak, otherwise "".
std::string AbovePeakText(const Cell& cell);

// "the stated 989 TFLOPS", "the measured 0.171 TFLOPS": Cell::peak_tflops.
std::string PeakText(const Cell& cell);

// The share of memory bandwidth of docs/metrics.md. NaN if the runs do not
// record it, and if it is above 1: caches held some of the data, or the
// bandwidth was measured too low.
double MemoryBandwidthShare(const Cell& cell);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_CELL_H_
