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

// Columns with the same value in all rows of a run, which distinguish its rows
// from another run's.
using CsvContext = std::vector<std::pair<std::string, std::string>>;

// Writes a header and one line per row, quoted as in RFC 4180, lines terminated
// by '\n'. Inapplicable fields are empty; numbers read back bit-equal. Each row
// is one write(2), so that results survive the process. Not thread-safe.
class CsvWriter {
 public:
  // Creates the file if it is missing (its folder must exist). Appends to a
  // file written by this class; FailedPrecondition for any other content.
  // `context` are the first columns. `path` is used unchanged: resolve it with
  // UserPath() first.
  static absl::StatusOr<std::unique_ptr<CsvWriter>> Open(
      const std::string& path, const CsvContext& context = {});

  CsvWriter(const CsvWriter&) = delete;
  CsvWriter& operator=(const CsvWriter&) = delete;
  ~CsvWriter();

  absl::Status Write(const Row& row);

 private:
  CsvWriter(std::string path, int fd, CsvContext context);
  // Writes the header into an empty file; otherwise checks it.
  absl::Status Begin();
  absl::Status Append(const std::string& text);

  const std::string path_;
  const int fd_;
  const CsvContext context_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_CSV_H_
