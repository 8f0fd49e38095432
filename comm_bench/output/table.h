// The results as a table on the console, similar to nccl-tests.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_TABLE_H_
#define RANKWISE_COMM_BENCH_OUTPUT_TABLE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm_bench/output/row.h"

namespace rankwise::comm_bench {

// Formats facts about the measurement as comments above the table: "# host
// node-3".
std::string FormatFacts(
    const std::vector<std::pair<std::string, std::string>>& facts);

// Returns the ranks of the call, "  ranks 0,1 alone" or, for several concurrent
// groups, "  ranks 0,1 of 2 groups"; "" for all ranks.
std::string GroupRemark(const CallDescription& call);

// Lines have at most 135 columns if numbers fit their columns; comments start
// with '#'. Inapplicable cells are "-".
//
//   Table table(Across::kSlowest);
//   for (const Row& row : rows) std::cout << table.Add(row);
//   std::cout << table.Legend();
class Table {
 public:
  // The header names `across`, the combination of the ranks' times.
  explicit Table(Across across) : across_(across) {}

  // Returns the row's line, preceded by a header before the first row of a
  // collective.
  std::string Add(const Row& row);
  // Explains the marks in the rows so far; "" without marks.
  std::string Legend() const;

 private:
  const Across across_;
  std::string collective_;  // of the latest header
  std::set<char> marks_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_TABLE_H_
