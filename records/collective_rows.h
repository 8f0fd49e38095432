// Rows of the communication benchmark: the records of all ranks of one call.
#ifndef RANKWISE_RECORDS_COLLECTIVE_ROWS_H_
#define RANKWISE_RECORDS_COLLECTIVE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "records/record.h"

namespace rankwise {

// What one launch measured of one row, a record of each rank.
struct CollectiveRow {
  std::vector<const CollectiveRecord*> ranks;  // never empty
  int turn = 0;  // how many rows before it were measured alike
};

// The part of a description that all ranks and launches of a row share:
// everything but the algorithm and protocol that the library chose, `trips`,
// `bus_factor` and `group_size`.
CallDescription RowKey(const CollectiveRecord& record);

// Joins the k-th record of each rank with the same RowKey and launch into one
// row. Rows are in the order of their first records. The records must outlive
// the result.
std::vector<CollectiveRow> CollectiveRows(
    absl::Span<const CollectiveRecord* const> records);

// What the library said it chose for a row. It may say so on one rank alone.
struct ChosenAlgorithm {
  std::string algorithm, protocol;  // "" unknown
};
ChosenAlgorithm AlgorithmOf(const CollectiveRow& row);

// The ranks that make the call together; files of before 1.5 do not say so, and
// it is counted.
int64_t GroupSize(const CollectiveRecord& record, int64_t world_size);

// Empty, or why the row is not one measurement, such as "has the records of 1
// of 2 ranks": a rank is missing, or they disagree about their iterations or
// what the library chose. A pair's ping-pong has its lower rank's record alone.
std::string WhyNotOneRow(const CollectiveRow& row, int64_t world_size);

// Of each iteration that no rank calls late the slowest rank's time, divided by
// `trips`. The ranks must have the same number of iterations.
std::vector<double> SlowestSeconds(const CollectiveRow& row);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_COLLECTIVE_ROWS_H_
