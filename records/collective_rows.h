// Rows of the communication benchmark: the records of all ranks of one call.
#ifndef RANKWISE_RECORDS_COLLECTIVE_ROWS_H_
#define RANKWISE_RECORDS_COLLECTIVE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "records/record.h"

namespace rankwise {

// The measurements of one row in one launch: one record per rank.
struct CollectiveRow {
  std::vector<const CollectiveRecord*> ranks;  // never empty
  int turn = 0;  // number of preceding rows with the same RowKey and launch
};

// Returns the part of a description that all ranks and launches of a row share:
// everything except the algorithm and protocol chosen by the library,
// `calls_per_iteration`, `bus_factor` and `group_size`.
CallDescription RowKey(const CollectiveRecord& record);

// Joins the k-th record of each rank with the same RowKey and launch into one
// row. Returns the rows in the order of their first records. The records must
// outlive the result.
std::vector<CollectiveRow> CollectiveRows(
    absl::Span<const CollectiveRecord* const> records);

// The library's choice for a row. A single rank may have reported it.
struct ChosenAlgorithm {
  std::string algorithm, protocol;  // "" if unknown
};
ChosenAlgorithm AlgorithmOf(const CollectiveRow& row);

// Number of ranks in the call. Counted from `ranks` in files before 1.5, which
// do not record it.
int64_t GroupSize(const CollectiveRecord& record, int64_t world_size);

// Returns "", or why the row is not one measurement ("has the records of 1 of 2
// ranks"): a rank is missing, or the ranks disagree about the iterations or
// about the library's choice. A row of a pair's ping-pong consists of its lower
// rank's record only.
std::string WhyNotOneRow(const CollectiveRow& row, int64_t world_size);

// Returns the slowest rank's time, divided by `calls_per_iteration`, of each
// iteration that no rank lists as late. The ranks must have the same number of
// iterations.
std::vector<double> SlowestSeconds(const CollectiveRow& row);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_COLLECTIVE_ROWS_H_
