// What every part of the report says about a study's cells, as JSON.

#ifndef ANALYSIS_REPORT_CELL_DATA_H_
#define ANALYSIS_REPORT_CELL_DATA_H_

#include "absl/types/span.h"
#include "analysis/cell.h"
#include "analysis/stats/statistics.h"
#include "nlohmann/json.hpp"

namespace rankwise {

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

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_CELL_DATA_H_
