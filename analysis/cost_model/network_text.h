// A network model for the terminal.

#ifndef ANALYSIS_COST_MODEL_NETWORK_TEXT_H_
#define ANALYSIS_COST_MODEL_NETWORK_TEXT_H_

#include <string>

#include "analysis/cost_model/network_model.h"

namespace rankwise {

// A table with a row per segment: collective, ranks, sizes, alpha and beta with
// their intervals, bandwidth (1 / beta, GB = 1e9 bytes) and the curve's median
// error; below it how each collective grows with the ranks, and LogGP.
std::string NetworkText(const NetworkModel& network);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_NETWORK_TEXT_H_
