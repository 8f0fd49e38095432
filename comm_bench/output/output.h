// Output of a rank's results: rank 0's console and CSV file, every rank's
// records.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_OUTPUT_H_
#define RANKWISE_COMM_BENCH_OUTPUT_OUTPUT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/output/csv.h"
#include "comm_bench/output/row.h"
#include "comm_bench/output/table.h"
#include "records/record.h"
#include "records/record_writer.h"

namespace rankwise::comm_bench {

struct OutputConfig {
  std::string record_file;  // "" for no records
  std::string csv_file;     // "" for no CSV
  CsvContext csv_context;
  Across across = Across::kSlowest;
};

// Each call writes its data before it returns: nothing is buffered that a
// signal could lose.
class Output {
 public:
  // Opens the files and writes `run` and `environment` as the first records.
  static absl::StatusOr<std::unique_ptr<Output>> Open(
      const OutputConfig& config, const RunRecord& run,
      const EnvironmentRecord& environment);

  // Prints on rank 0 only.
  void Print(const std::string& text) const;
  // Adds the row to the table and the CSV file, and writes its record.
  absl::Status Add(const Row& row);
  absl::Status Write(const Record& record);
  // Explains the marks in the table.
  void PrintLegend() const { Print(table_.Legend()); }

 private:
  Output(Across across, bool shows) : shows_(shows), table_(across) {}

  const bool shows_;  // rank 0
  Table table_;
  std::unique_ptr<RecordWriter> records_;  // nullptr without a record file
  std::unique_ptr<CsvWriter> csv_;         // nullptr without a CSV file
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_OUTPUT_H_
