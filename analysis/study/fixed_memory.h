// Scaling with constant memory per rank: finds, by short runs, every cell's
// largest batch whose peak memory stays under a limit.
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
  int64_t peak_bytes = 0;  // measured with that batch
  MemoryProbes probes;
};

// Assumes that memory grows linearly with the batch: two probes determine the
// line, and the resulting batch is probed, too, to confirm that it fits. If the
// line was wrong, continues between the largest batch that fits and the
// smallest that does not. Batches are multiples of 8, the smallest, up to 2^20.
// `probe` returns the peak memory of a batch. OutOfRange if even the smallest
// batch does not fit; fails if `probe` does.
absl::StatusOr<MemoryFit> LargestBatch(
    int64_t limit_bytes,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe);

// Returns the batch of `fit` if a whole run with it stays under the limit;
// otherwise reduces it by the probes' memory per example until `whole_run`
// returns a peak under the limit. peak_bytes is that peak. OutOfRange if no
// batch is left; fails if `whole_run` does.
absl::StatusOr<MemoryFit> ConfirmBatch(
    int64_t limit_bytes, MemoryFit fit,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& whole_run);

// Returns StudyPlan::searched with their batches. Short runs, whose records go
// to the study's folder probes/, find each cell's batch, and a run of all
// config.max_steps, in probes/whole/, confirms it; existing runs are not
// repeated. A run that dies with more than the smallest batch counts as too
// large, in later sessions, too (its file STEM.too_large); a run that takes too
// long ends the search. OutOfRange, with the cell and its memory, if even its
// smallest batch does not fit; Cancelled after one of `signals`.
absl::StatusOr<std::vector<PlannedRun>> FindFixedMemoryRuns(
    const StudyConfig& config, HeldSignals& signals);

// Returns one line for every repetition of the `fixed_memory` cells among
// `runs` that recorded more than the limit; "" without any.
std::string OverLimitText(const StudyConfig& config,
                          absl::Span<const PlannedRun> fixed_memory,
                          absl::Span<const RunTrace> runs);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_FIXED_MEMORY_H_
