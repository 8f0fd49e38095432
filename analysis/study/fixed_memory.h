// Scaling with the memory of a rank held equal: finds the batch of every cell
// by short runs.

#ifndef ANALYSIS_STUDY_FIXED_MEMORY_H_
#define ANALYSIS_STUDY_FIXED_MEMORY_H_

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_runner.h"

namespace rankwise {

// Of the fullest rank: of its accelerators where it has any, else of its
// process. NotFound where a rank recorded none.
absl::StatusOr<int64_t> PeakMemory(const RunTrace& run);

struct FixedMemoryResult {
  std::vector<PlannedRun> runs;  // FixedMemoryRuns with their batches
  int interrupted_by = 0;        // the signal that ended the search, or 0
};

// Short runs, whose records go to the folder probes/ of the study's, find each
// cell's batch, and one of all config.max_steps, in probes/whole/, confirms it
// (memory_search.h); those that are there already are not run again. A run that
// dies where a smaller batch ran counts as one of too large a batch, for ever
// by its file STEM.too_large; one that takes too long ends the search.
// OutOfRange, naming the cell and what it needs, where not even its smallest
// batch fits.
// Needs a HeldSignals that lives (subprocess.h).
absl::StatusOr<FixedMemoryResult> FindFixedMemoryRuns(
    const StudyConfig& config, const StudyRunnerConfig& runner,
    std::ostream& progress);

// One line for every run of `plan` in the cells of `fixed_memory` that recorded
// more than the limit all the same; "" without any. `dir`: the study's folder.
std::string OverLimitText(const StudyConfig& config,
                          absl::Span<const PlannedRun> fixed_memory,
                          absl::Span<const PlannedRun> plan,
                          absl::Span<const RunTrace> runs,
                          const std::string& dir);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_FIXED_MEMORY_H_
