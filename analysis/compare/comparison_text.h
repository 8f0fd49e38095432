// A comparison as text for people, and as CSV.

#ifndef ANALYSIS_COMPARE_COMPARISON_TEXT_H_
#define ANALYSIS_COMPARE_COMPARISON_TEXT_H_

#include <string>

#include "analysis/compare/comparison.h"
#include "analysis/compare/record_set.h"

namespace rankwise {

// "slower", "same", ... of a metric's own kind.
std::string VerdictName(const Change& change);

// The two sides, the table, what to know about it, and the result in a line.
std::string ComparisonText(const RecordSet& a, const RecordSet& b,
                           const Comparison& comparison,
                           const ChangeConfig& config);

// What Comparison::IsComplete lacks, in a line; "" where it holds.
std::string MissingText(const Comparison& comparison);

// A header and a line per change, fields quoted as RFC 4180 says. Values in
// seconds, bytes or per second; empty where not known.
std::string ComparisonCsv(const Comparison& comparison);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_COMPARISON_TEXT_H_
