// The answer as text for a terminal: the tables, and the findings in words.

#ifndef ANALYSIS_ANSWER_ANSWER_TEXT_H_
#define ANALYSIS_ANSWER_ANSWER_TEXT_H_

#include <string>

#include "analysis/answer/answer.h"

namespace rankwise {

// What was compared with what, the table of scaling, that of the pipelines
// (pipeline_report.h), the ledgers, the findings and the notes.
std::string AnswerText(const Answer& answer);

}  // namespace rankwise

#endif  // ANALYSIS_ANSWER_ANSWER_TEXT_H_
