// Answers made up for the tests of the report.

#ifndef ANALYSIS_REPORT_ANSWER_FOR_TEST_H_
#define ANALYSIS_REPORT_ANSWER_FOR_TEST_H_

#include <memory>
#include <string>

#include "analysis/answer/answer.h"

namespace rankwise {

// Something in every part: single, ddp on 1 to 8 ranks, two pipelines, two
// networks, predictions with their score. Figures are plausible, not measured.
// `name` stands in every text that a user or a machine may have chosen.
std::unique_ptr<Answer> FullAnswer(const std::string& name);

// One run of one rank, and a note on why that says little.
std::unique_ptr<Answer> BareAnswer();

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_ANSWER_FOR_TEST_H_
