// One side of a comparison: the measurements of each configuration, one value
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

// The repetitions of a collective.
enum class CallUnit {
  kLaunch,     // launches of the job: the median over the iterations
  kIteration,  // iterations, as if those of a launch were independent
};

// A cell of trainers, or a row of comm_bench, with its repetitions.
struct Configuration {
  std::string name;  // "ddp on 2 ranks, batch 32"
  std::string unit;  // "run", "launch", "iteration"
  // properties that must be equal in configurations to be compared
  std::map<std::string, std::string> identity;
  // must be equal, too, if both have the flag
  std::map<std::string, std::string> flags;
  std::string cpus;  // CPU models; may differ between A and B
  // of its repetitions, without duplicates
  std::vector<std::string> code_versions;
  // metric's name (kMetrics) -> one value per repetition that has it
  std::map<std::string, std::vector<double>> samples;
  // Only for rows of comm_bench: CollectiveRecord::bytes, GroupSize and
  // CollectiveRecord::bus_factor.
  int64_t bytes = 0;
  int64_t ranks = 1;
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

// Returns "ddp on 2 ranks, batch 32".
std::string CellLabel(const Cell& cell);

// Returns CellLabel, followed by ", without communication" for an ablation and
// by the flags that differ between cells with the same label, except flags that
// name files: "ddp on 2 ranks, batch 32, --lr=0.1".
std::vector<std::string> CellLabels(absl::Span<const Cell> cells);

// Returns one configuration per cell; a repetition is a run. Skips runs of
// comm_bench; appends those that cannot be measured to `left_out` with the
// reason.
std::vector<Configuration> TrainerConfigurations(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config,
    std::vector<std::string>* left_out);

// Returns one configuration per row: collective, bytes, dtype, operation, world
// size, number of hosts, and the way of calling it. A call's time is the
// slowest rank's, excluding iterations that started late; a launch's is the
// median over its iterations. Appends rows without a rank's record, or with
// disagreeing ranks, to `left_out`.
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
  size_t jobs = 0;  // number of jobs (JobsOf)
  // commit, torch and CPU, without duplicates
  std::vector<std::string> made_by;
  std::vector<Configuration> configurations;
  std::vector<std::string> left_out;  // runs, rows and lines, with reasons
  std::set<std::string> run_ids;
};

RecordSet MeasureRecordSet(absl::Span<const RunTrace> runs,
                           const RecordSetConfig& config);

// Measures a record file, or all *.jsonl in a folder. Fails if there are none,
// if one cannot be read, or if nothing in them can be measured.
absl::StatusOr<RecordSet> LoadRecordSet(const std::string& path,
                                        const RecordSetConfig& config);

// Fails if repetitions of one configuration ran different or unknown code, and
// so do not measure the same thing. A and B may be of different code.
absl::Status CheckCode(const RecordSet& set);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COMPARE_RECORD_SET_H_
