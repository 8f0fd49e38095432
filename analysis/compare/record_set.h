// One side of a comparison: what was measured of each configuration, a value
// per repetition.
#ifndef RANKWISE_ANALYSIS_COMPARE_RECORD_SET_H_
#define RANKWISE_ANALYSIS_COMPARE_RECORD_SET_H_

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"

namespace rankwise {

// What counts as a repetition of a collective.
enum class CallUnit {
  kLaunch,     // a launch of the job: its median over the iterations
  kIteration,  // every iteration, as if those of a launch were independent
};

// A cell of trainers, or a row of comm_bench, with its repetitions.
struct Configuration {
  std::string name;  // "ddp on 2 ranks, batch 32"
  std::string unit;  // "run", "launch", "iteration"
  // What it is; equal in configurations that are compared.
  std::map<std::string, std::string> identity;
  // Equal too, where both have the flag.
  std::map<std::string, std::string> flags;
  std::string cpus;  // that it ran on; may differ between A and B
  std::vector<std::string> code_versions;  // of its repetitions, each once
  // A metric's name (kMetrics) -> one value per repetition that has it.
  std::map<std::string, std::vector<double>> samples;
  // Only of a row of comm_bench: CollectiveRecord::bytes, GroupSize and
  // CollectiveRecord::bus_factor.
  int64_t bytes = 0;
  int64_t ranks = 1;
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

// "ddp on 2 ranks, batch 32".
std::string CellLabel(const Cell& cell);

// CellLabel, then ", without communication" for an ablation, then the flags
// that differ between cells with the same label, except flags that name files:
// "ddp on 2 ranks, batch 32, --lr=0.1".
std::vector<std::string> CellLabels(absl::Span<const Cell> cells);

// One per cell; a repetition is a run. Runs of comm_bench are passed over,
// those that cannot be measured are appended to `left_out` with the reason.
std::vector<Configuration> TrainerConfigurations(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config,
    std::vector<std::string>* left_out);

// One per row: collective, bytes, dtype, operation, world size, number of
// hosts, and how it was called. The time of a call is that of the slowest rank,
// iterations that started late left out; of a launch it is the median over its
// iterations. Rows that a rank of a launch lacks or on which its ranks disagree
// are appended to `left_out`.
std::vector<Configuration> CallConfigurations(
    absl::Span<const RunTrace> runs, CallUnit unit,
    std::vector<std::string>* left_out);

struct RecordSetConfig {
  ThroughputConfig throughput;
  CallUnit calls = CallUnit::kLaunch;
};

struct RecordSet {
  std::string path;
  size_t runs = 0;
  size_t jobs = 0;                   // that they are parts of (JobsOf)
  std::vector<std::string> made_by;  // commit, torch and CPU, each once
  std::vector<Configuration> configurations;
  std::vector<std::string> left_out;  // runs, rows and lines, and why
  std::set<std::string> run_ids;
};

RecordSet MeasureRecordSet(absl::Span<const RunTrace> runs,
                           const RecordSetConfig& config);

// Of a record file, or of all *.jsonl in a folder. Fails where there are none,
// where one cannot be read, and where nothing in them can be measured.
absl::StatusOr<RecordSet> LoadRecordSet(const std::string& path,
                                        const RecordSetConfig& config);

// Fails where repetitions of one configuration ran different or unknown code:
// they measure no one thing. A and B may be of different code.
absl::Status CheckCode(const RecordSet& set);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COMPARE_RECORD_SET_H_
