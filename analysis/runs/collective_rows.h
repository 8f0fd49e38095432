// The rows of the communication benchmark, joined from the records of the
// ranks.
#ifndef RANKWISE_ANALYSIS_RUNS_COLLECTIVE_ROWS_H_
#define RANKWISE_ANALYSIS_RUNS_COLLECTIVE_ROWS_H_

#include <string>
#include <vector>

#include "analysis/runs/run_trace.h"
#include "records/record.h"

namespace rankwise {

// What one launch measured of one row, a record of each rank.
struct CollectiveRow {
  std::vector<const CollectiveRecord*> ranks;  // into the run; never empty
  int turn = 0;  // how many rows before it were measured alike
};

// What the library said it chose for a row. It may say so on one rank alone.
struct ChosenAlgorithm {
  std::string algorithm, protocol;  // "" unknown
};
ChosenAlgorithm AlgorithmOf(const CollectiveRow& row);

// The ranks that make the call together; files of before 1.5 do not say so, and
// it is counted.
int64_t GroupSize(const CollectiveRecord& record, int64_t world_size);

// The k-th record of a description of every rank is one row: collective, layer,
// group, size, type, operation, root, in place, in flight, cache, sync, timing,
// graph, registered and launch. In the order in which the first rank to have a
// row has them.
std::vector<CollectiveRow> CollectiveRows(const RunTrace& run);

// Empty, or why the row is not one measurement, such as "has the records of 1
// of 2 ranks": a rank is missing, or they disagree about their iterations or
// what the library chose. A pair's ping-pong is told by its lower rank alone.
std::string WhyNotOneRow(const CollectiveRow& row, int64_t world_size);

// Of each iteration that no rank calls late the slowest rank's time, divided by
// `trips`. Expects a row that WhyNotOneRow accepts.
std::vector<double> SlowestSeconds(const CollectiveRow& row);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_COLLECTIVE_ROWS_H_
