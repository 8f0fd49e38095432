// The slowest of several ranks, expected from each rank's own samples.

#ifndef ANALYSIS_LEDGER_EXPECTED_MAXIMUM_H_
#define ANALYSIS_LEDGER_EXPECTED_MAXIMUM_H_

#include <vector>

namespace rankwise {

// The expected value of the largest of one draw from each of `samples`, drawn
// independently: exact for the samples' empirical distributions, as the
// distribution function of a maximum is the product of those of its parts
// (David and Nagaraja, Order Statistics, 2003, section 2.1). `samples` holds
// one sample at least, and none is empty.
double ExpectedMaximum(const std::vector<std::vector<double>>& samples);

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_EXPECTED_MAXIMUM_H_
