// Scaling with the memory of a rank held equal: the largest batch of every cell
// whose peak memory stays under a limit, found by short runs.
#ifndef RANKWISE_ANALYSIS_STUDY_FIXED_MEMORY_H_
#define RANKWISE_ANALYSIS_STUDY_FIXED_MEMORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/study/programs.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

using MemoryProbes = std::map<int64_t, int64_t>;  // batch -> peak bytes

struct MemoryFit {
  int64_t batch = 0;
  int64_t peak_bytes = 0;  // as probed with that batch
  MemoryProbes probes;
};

// Memory is taken to grow linearly with the batch: two probes give the line,
// and the batch that it allows is probed too, so that the answer has been seen
// to fit. Where the line was wrong, the search goes on between what fitted and
// what did not. Batches are multiples of 8, the smallest, up to 2^20. `probe`
// returns the peak memory of a batch. OutOfRange where not even the smallest
// batch fits; fails where `probe` does.
absl::StatusOr<MemoryFit> LargestBatch(
    int64_t limit_bytes,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe);

// The batch of `fit`, or, where a whole run with it needs more than the limit,
// one smaller by what the probes say that this costs, until `whole_run` says a
// peak under the limit; peak_bytes is then that peak. OutOfRange where none
// is left; fails where `whole_run` does.
absl::StatusOr<MemoryFit> ConfirmBatch(
    int64_t limit_bytes, MemoryFit fit,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& whole_run);

// StudyPlan::searched with their batches. Short runs, whose records go to the
// folder probes/ of the study's, find each cell's batch, and one of all
// config.max_steps, in probes/whole/, confirms it; those that are there already
// are not run again. A run that dies with more than the smallest batch counts
// as one of too large a batch, in later sessions too (its file STEM.too_large);
// one that takes too long ends the search. OutOfRange, naming the cell and what
// it needs, where not even its smallest batch fits; Cancelled where one of
// `signals` came.
absl::StatusOr<std::vector<PlannedRun>> FindFixedMemoryRuns(
    const StudyConfig& config, HeldSignals& signals);

// One line for every repetition of the cells of `fixed_memory` among `runs`
// that recorded more than the limit all the same; "" without any.
std::string OverLimitText(const StudyConfig& config,
                          absl::Span<const PlannedRun> fixed_memory,
                          absl::Span<const RunTrace> runs);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_FIXED_MEMORY_H_
