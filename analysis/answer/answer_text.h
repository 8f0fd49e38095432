// The answer as text for a terminal: the tables, and the findings in words.
#ifndef RANKWISE_ANALYSIS_ANSWER_ANSWER_TEXT_H_
#define RANKWISE_ANALYSIS_ANSWER_ANSWER_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/runs/cell.h"

namespace rankwise {

// What was compared with what, the table of scaling, that of the pipelines
// (PipelineTable), the ledgers, the findings and the notes.
std::string AnswerText(const Answer& answer);

// Two tables, in each one row per cell with schedule records, medians over its
// repetitions, under headings and above an empty line. "" where no cell has
// any. Ablations have no row.
std::string PipelineTable(absl::Span<const Cell> cells);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_ANSWER_TEXT_H_
