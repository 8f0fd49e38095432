// The report's data on what communication costs, as JSON.

#ifndef ANALYSIS_REPORT_NETWORK_DATA_H_
#define ANALYSIS_REPORT_NETWORK_DATA_H_

#include "absl/types/span.h"
#include "analysis/compare/configuration.h"
#include "analysis/cost_model/network_model.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// Every curve with its points, its pieces, and the factor of its bus bandwidth.
nlohmann::json NetworksData(absl::Span<const NetworkModel> networks);

// The benchmark's rows: {"name", what tells it apart by name, "seconds": the
// median over its launches, "launches", "bus_factor": null where the records do
// not say so}.
nlohmann::json CallsData(absl::Span<const Configuration> calls);

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_NETWORK_DATA_H_
