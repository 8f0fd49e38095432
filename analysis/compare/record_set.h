// One side of a comparison: what was measured, a value per repetition.

#ifndef ANALYSIS_COMPARE_RECORD_SET_H_
#define ANALYSIS_COMPARE_RECORD_SET_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/compare/configuration.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"

namespace rankwise {

struct RecordSetConfig {
  ThroughputConfig throughput;
  CallUnit calls = CallUnit::kLaunch;
};

struct RecordSet {
  std::string path;
  size_t runs = 0;
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

#endif  // ANALYSIS_COMPARE_RECORD_SET_H_
