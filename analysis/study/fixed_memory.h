// Scaling with the memory of a rank held equal: finds the batch of every cell
// by short runs.

#ifndef ANALYSIS_STUDY_FIXED_MEMORY_H_
#define ANALYSIS_STUDY_FIXED_MEMORY_H_

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "absl/status/statusor.h"
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

// Every probe is a short run whose records go to the folder probes/ of the
// study's; those that are there already are not run again. A run that dies
// where a smaller batch ran counts as one of too large a batch. OutOfRange,
// naming the cell and what it needs, where not even its smallest batch fits.
// Needs a HeldSignals that lives (subprocess.h).
absl::StatusOr<FixedMemoryResult> FindFixedMemoryRuns(
    const StudyConfig& config, const StudyRunnerConfig& runner,
    std::ostream& progress);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_FIXED_MEMORY_H_
