// The study's answer as text: what was compared with what, the table, that of
// the pipelines (pipeline_report.h), and two lines in words.

#ifndef ANALYSIS_SCALING_REPORT_H_
#define ANALYSIS_SCALING_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/statistics.h"
#include "analysis/throughput.h"

namespace rankwise {

struct ScalingReportConfig {
  ThroughputConfig throughput;
  BootstrapConfig bootstrap;
};

// Depends on the runs alone, so that records read back from disk give the same
// text. Refused comparisons and runs left out are listed with their reasons.
std::string ScalingReport(absl::Span<const RunTrace> runs,
                          const ScalingReportConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_SCALING_REPORT_H_
