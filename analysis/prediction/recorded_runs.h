// Which of a study's runs a prediction may be made from.

#ifndef ANALYSIS_PREDICTION_RECORDED_RUNS_H_
#define ANALYSIS_PREDICTION_RECORDED_RUNS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"

namespace rankwise {

// The value of one of the run's flags; "" without it.
std::string FlagOf(const RunTrace& run, const std::string& name);

// Ranks computed and exchanged nothing (--skip_communication).
bool SkipsCommunication(const RunTrace& run);

// The backend `fake` pretends its ranks: they are rank 0's mirror images, share
// no cores, and are never late.
bool IsFake(const RunTrace& run);

// A run of the backend `fake` has the records of rank 0 alone; with those of
// its mirror images it is complete for CheckRun. Other runs stay as they are.
RunTrace MirrorFakeRanks(RunTrace run);

// Examples of a rank's step; of a pipeline, of a replica's step. Median.
double ExamplesPerStep(const RunTrace& run, const ThroughputConfig& config);

// Those of ddp, model_parallel and pipeline that can be measured and whose
// steps were not captured. FailedPrecondition, naming the flag and two files,
// where they did not train the same thing, and where all were captured.
absl::StatusOr<std::vector<const RunTrace*>> PredictableRuns(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_RECORDED_RUNS_H_
