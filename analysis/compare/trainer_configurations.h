// The cells of trainers as configurations to compare.

#ifndef ANALYSIS_COMPARE_TRAINER_CONFIGURATIONS_H_
#define ANALYSIS_COMPARE_TRAINER_CONFIGURATIONS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/compare/configuration.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"

namespace rankwise {

// One per cell; a repetition is a run. Runs of comm_bench are passed over,
// those that cannot be measured are appended to `left_out` with the reason.
std::vector<Configuration> TrainerConfigurations(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config,
    std::vector<std::string>* left_out);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_TRAINER_CONFIGURATIONS_H_
