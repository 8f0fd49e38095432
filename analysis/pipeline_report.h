// The study's tables of pipelines: their bubbles and times beside the predicted
// ones, and how idle each rank was. docs/metrics.md has the formulas.

#ifndef ANALYSIS_PIPELINE_REPORT_H_
#define ANALYSIS_PIPELINE_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "analysis/cell.h"

namespace rankwise {

// Two tables, in each one row per cell with schedule records, medians over its
// repetitions, under headings and above an empty line. "" where no cell has
// any. Ablations have no row.
std::string PipelineTable(absl::Span<const Cell> cells);

}  // namespace rankwise

#endif  // ANALYSIS_PIPELINE_REPORT_H_
