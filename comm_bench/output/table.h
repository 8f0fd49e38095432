// The results as a table on the console, in the manner of nccl-tests.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_TABLE_H_
#define RANKWISE_COMM_BENCH_OUTPUT_TABLE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm_bench/output/row.h"

namespace rankwise::comm_bench {

// What was measured on, as comments above the table: "# host    node-3".
std::string FormatFacts(
    const std::vector<std::pair<std::string, std::string>>& facts);

// Whose call it was, "  ranks 0,1 alone" or, of several groups at the same
// time, "  ranks 0,1 of 2 groups"; "" for all ranks.
std::string GroupRemark(const CallDescription& call);

// Lines of at most 135 columns, where numbers fit their columns; comments start
// with '#'. What does not apply is "-".
//
//   Table table(Across::kSlowest);
//   for (const Row& row : rows) std::cout << table.Add(row);
//   std::cout << table.Legend();
class Table {
 public:
  // `across` says in the header how the ranks' times were combined.
  explicit Table(Across across) : across_(across) {}

  // The row's line; before the first row of a collective, also its header.
  std::string Add(const Row& row);
  // Explains the marks that the rows so far carry; "" where there are none.
  std::string Legend() const;

 private:
  const Across across_;
  std::string collective_;  // of the latest header
  std::set<char> marks_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_TABLE_H_
