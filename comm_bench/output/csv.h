// The results as CSV.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_CSV_H_
#define RANKWISE_COMM_BENCH_OUTPUT_CSV_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/output/row.h"

namespace rankwise::comm_bench {

// Columns that are the same in all rows of a run, with their values: what tells
// one run's rows from another's.
using CsvContext = std::vector<std::pair<std::string, std::string>>;

// A header and one line per row; fields quoted as RFC 4180 says, lines ended by
// '\n'. What does not apply is empty; numbers read back bit-equal. Each row is
// one write(2), so that what was measured survives the process. Not
// thread-safe.
class CsvWriter {
 public:
  // Creates the file where it is missing (its folder must exist). Appends to
  // one that this class wrote, FailedPrecondition where it holds anything else.
  // `context` are the first columns. `path` is taken as it is: resolve it
  // against BUILD_WORKING_DIRECTORY first.
  static absl::StatusOr<std::unique_ptr<CsvWriter>> Open(
      const std::string& path, const CsvContext& context = {});

  CsvWriter(const CsvWriter&) = delete;
  CsvWriter& operator=(const CsvWriter&) = delete;
  ~CsvWriter();

  absl::Status Write(const Row& row);

 private:
  CsvWriter(std::string path, int fd, CsvContext context);
  // Writes the header into an empty file, and otherwise checks it.
  absl::Status Begin();
  absl::Status Append(const std::string& text);

  const std::string path_;
  const int fd_;
  const CsvContext context_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_CSV_H_
