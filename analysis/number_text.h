// Figures as the tables and sentences print them; "-" for what is not known.

#ifndef ANALYSIS_NUMBER_TEXT_H_
#define ANALYSIS_NUMBER_TEXT_H_

#include <string>

namespace rankwise {

std::string PercentText(double share);        // "97.1 %"
std::string SignedPercentText(double share);  // "+3.2 %"

// Three digits of a time in milliseconds, without the unit: "12.3", "0.0123".
std::string MillisecondsText(double seconds);

// The same with two decimals, for a column of them: "12.30".
std::string MillisecondsColumn(double seconds);

}  // namespace rankwise

#endif  // ANALYSIS_NUMBER_TEXT_H_
