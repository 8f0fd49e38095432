// The rows of comm_bench as configurations to compare.

#ifndef ANALYSIS_COMPARE_CALL_CONFIGURATIONS_H_
#define ANALYSIS_COMPARE_CALL_CONFIGURATIONS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/compare/configuration.h"
#include "analysis/run_trace.h"

namespace rankwise {

// One per row: collective, bytes, dtype, operation, world size, and how it was
// called. The time of a call is that of the slowest rank, iterations that
// started late left out; of a launch it is the median over its iterations.
// Rows that a rank of a launch lacks or on which its ranks disagree are
// appended to `left_out`.
std::vector<Configuration> CallConfigurations(
    absl::Span<const RunTrace> runs, CallUnit unit,
    std::vector<std::string>* left_out);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_CALL_CONFIGURATIONS_H_
