// Everything that the report's page draws, as one JSON object. Places, names
// and units are the page's own: page/*.js reads it, nothing else should.
#ifndef RANKWISE_ANALYSIS_REPORT_REPORT_DATA_H_
#define RANKWISE_ANALYSIS_REPORT_REPORT_DATA_H_

#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/compare/record_set.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// Seconds, bytes and shares of 1, as in the answer. Long loss curves are
// thinned to every k-th step. Numbers that are not finite become null when
// written.
nlohmann::json ReportData(const Answer& answer);

// A list of what `data_of` says of every member of `list`.
template <typename List, typename DataOf>
nlohmann::json DataOfEach(const List& list, const DataOf& data_of) {
  nlohmann::json data = nlohmann::json::array();
  for (const auto& one : list) data.push_back(data_of(one));
  return data;
}

// [low, high]; null where an end is unknown.
nlohmann::json IntervalData(const Interval& interval);

// A cell's place among `cells`, which the others refer to it by; null for null
// and for one that is not among them.
nlohmann::json CellIndex(absl::Span<const Cell> cells, const Cell* cell);

// Names, sizes, figures over the repetitions, what to beware of, and the use of
// its pipelines, if any.
nlohmann::json CellsData(absl::Span<const Cell> cells);

// Machines, versions, commits, and the flags that all cells share.
nlohmann::json OriginData(absl::Span<const Cell> cells);

// A row per cell and way of scaling; a refused one says why.
nlohmann::json RowsData(const Answer& answer);

// Series of points over ranks, with their laws drawn to twice the largest size.
nlohmann::json SeriesData(const Answer& answer);

nlohmann::json LedgersData(const Answer& answer);
nlohmann::json WaterfallsData(const Answer& answer);
nlohmann::json AblationsData(const Answer& answer);

// Every curve with its points, its pieces, and the factor of its bus bandwidth.
nlohmann::json NetworksData(absl::Span<const NetworkModel> networks);

// The benchmark's rows: {"name", what tells it apart by name, "seconds": the
// median over its launches, "launches", "bus_factor": null where the records do
// not say so}.
nlohmann::json CallsData(absl::Span<const Configuration> calls);

nlohmann::json PredictionsData(const Answer& answer);

// Predictions beside the cells that they had not seen.
nlohmann::json ScoresData(const Answer& answer);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_REPORT_DATA_H_
