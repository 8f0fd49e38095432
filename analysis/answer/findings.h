// The answer in words: how well it scales, what costs most, what to change,
// what comes next, and how far to trust it.
#ifndef RANKWISE_ANALYSIS_ANSWER_FINDINGS_H_
#define RANKWISE_ANALYSIS_ANSWER_FINDINGS_H_

#include <string>
#include <vector>

#include "analysis/answer/answer.h"

namespace rankwise {

// From the figures of `answer`; a question that the runs do not answer has no
// finding.
std::vector<Finding> FindingsOf(const Answer& answer);

// "ddp on 2 ranks, strong scaling", for sentences and headings.
std::string WaterfallName(const Waterfall& waterfall);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_FINDINGS_H_
