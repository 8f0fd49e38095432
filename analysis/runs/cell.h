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
  // Rank 0's record of the first repetition. world_size counts the replicas of
  // one process as ranks: each has a device and threads_per_rank threads.
  RunRecord run;
  int64_t global_batch = 0;
  double rank_batch = 0;  // Throughput::largest_rank_batch
  int64_t hosts = 1;      // number of hosts of the ranks
  std::vector<Throughput> repetitions;
  // for each repetition, its index among the runs passed to GroupIntoCells
  std::vector<size_t> run_indices;
  // one per repetition with usable schedule records; empty without them
  std::vector<PipelineUse> pipelines;
  // A device other than the CPU used by two ranks of one host, or "". If a
  // rank's environment record has CUDA_VISIBLE_DEVICES, its "cuda:0" is the
  // first GPU listed there.
  std::string shared_device;
  // Whether the ranks of a host had more threads than the cores available to
  // them, by their environment records, or else by the host's.
  bool oversubscribed = false;
  // whether a rank, or a replica, used more than one device
  bool several_devices_per_rank = false;
  // distinct devices of all ranks, in rank order: "cpu", "cuda:1"
  std::vector<std::string> devices;
  // Peak of one device: from --peak_tflops, or else the best measurement
  // (--peak) of a repetition or of another cell's run on the same host and
  // device, with the same precision, threads and torch. 0 if unknown or if
  // repetitions have different --peak_tflops.
  double peak_tflops = 0;
  bool peak_is_measured = false;
  double peak_bytes_per_second = 0;  // memory, measured; 0 if unknown
  // distinct CodeVersion values of the repetitions' ranks
  std::vector<std::string> code_versions;
  // median of PeakBytes over the repetitions that record it; 0 if none does
  double peak_bytes = 0;

  // Memory by kind of the fullest rank, in the first repetition that records it
  // (docs/memory.md); nullopt if none does.
  std::optional<MemoryRecord> memory;

  // Returns one value of `metric` per repetition.
  std::vector<double> Values(double Throughput::*metric) const;
  // Returns the geometric mean over the repetitions, the basis of the intervals
  // of ratios between cells.
  double ExamplesPerSecond() const;
  // Returns "ddp", "pipeline 1f1b"; with the mesh if the trainer has a choice
  // of it: "hybrid pp2xtp2 1f1b".
  std::string Trainer() const;
  // Returns "pipeline 1f1b on 2 ranks", "ddp on 4 ranks of 2 hosts".
  std::string Name() const;
  // Whether communication was skipped (--skip_communication): such a cell
  // explains others and is not compared with any.
  bool IsAblation() const;
};

// Returns the peak memory of a rank: of its accelerators if it used any, else
// of the host. 0 if not recorded.
double PeakBytes(const RankTrace& rank);
// Returns that of the run's fullest rank. 0 if a rank did not record it.
double PeakBytes(const RunTrace& run);

// Returns the sum of all kinds; 0 if unknown.
int64_t TotalBytes(const MemoryParts& parts);

// Returns "cpu", or "cuda" for "cuda:1"; "" without devices.
std::string DeviceKind(const RunRecord& run);

// Returns the distinct CPU models of the ranks: "A" or "A and B".
std::string CpuModels(const RunTrace& run);

// Returns "source 0123456789abcdef with torch 2.11.0", equal for equal code, or
// kUnknownCode.
std::string CodeVersion(const RunRecord& run);
inline constexpr char kUnknownCode[] = "unknown code";

// Returns why runs with these CodeVersions are not repetitions of each other,
// "ran different code (A, B)"; "" if all have the same known code.
std::string WhyNotOneCode(absl::Span<const std::string> versions);

// Returns "commit c0ffee012345 (modified)", "an unknown commit".
std::string CommitText(const RunRecord& run);

// Whether a flag varies with the world size but is not determined by it:
// accumulate, cp, devices, dp, microbatches, pp, replicas, servers, split, tp.
bool IsShapeFlag(absl::string_view name);

// Returns "32", "21.3": a pipeline's examples per rank may be fractional.
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
// division into micro-batches, replicas and stages, threads, CPU models and
// device kind, backend, and the flags that do not depend on the world size.
// Orders them by "single" first, then trainer, world size and batch. Appends to
// `left_out` why a run is left out, or lacks a PipelineUse despite schedule
// records.
std::vector<Cell> GroupIntoCells(absl::Span<const RunTrace> runs,
                                 const ThroughputConfig& config,
                                 std::vector<std::string>* left_out);

ExampleUnit UnitOf(const RunRecord& run);

// The unit of a table's rates: that of all its cells, or examples if they
// differ.
class RateColumn {
 public:
  explicit RateColumn(absl::Span<const Cell> cells);

  const std::string& name() const { return name_; }  // "tokens/s"
  double Of(const Cell& cell, double examples_per_second) const;

 private:
  std::string name_;
};

// Returns the model FLOPs utilisation (docs/metrics.md, MFU; Chowdhery et al.
// 2022, "PaLM", appendix B) relative to Cell::peak_tflops. NaN if the runs do
// not record the model's operations or have no peak, or if they computed faster
// than a measured peak, which was therefore measured too low.
double ModelFlopsUtilization(const Cell& cell);

// Returns "ddp on 2 ranks (1.53 times the measured 0.112 TFLOPS)" if the cell
// computed faster than its measured peak, otherwise "".
std::string AbovePeakText(const Cell& cell);

// Describes Cell::peak_tflops: "the stated 989 TFLOPS", "the measured 0.171
// TFLOPS".
std::string PeakText(const Cell& cell);

// Returns the share of memory bandwidth (docs/metrics.md). NaN if the runs do
// not record it, or if it is above 1: caches held some of the data, or the
// bandwidth was measured too low.
double MemoryBandwidthShare(const Cell& cell);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_CELL_H_
