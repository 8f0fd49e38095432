// Where a rank's results go: rank 0's console and CSV file, every rank's
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
  std::string record_file;  // empty: none
  std::string csv_file;     // empty: none
  CsvContext csv_context;
  Across across = Across::kSlowest;
};

// What has been added is on its way when a call returns: nothing is kept back
// that a signal could lose.
class Output {
 public:
  // Opens the files and begins the records with `run` and the environment.
  static absl::StatusOr<std::unique_ptr<Output>> Open(
      const OutputConfig& config, const RunRecord& run,
      const EnvironmentRecord& environment);

  // Rank 0 prints; the others say nothing.
  void Print(const std::string& text) const;
  // The row in the table and the CSV file, and its record.
  absl::Status Add(const Row& row);
  absl::Status Write(const Record& record);
  // What the marks in the table mean.
  void PrintLegend() const { Print(table_.Legend()); }

 private:
  Output(Across across, bool shows) : shows_(shows), table_(across) {}

  const bool shows_;  // rank 0
  Table table_;
  std::unique_ptr<RecordWriter> records_;  // null: none
  std::unique_ptr<CsvWriter> csv_;         // null: none
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_OUTPUT_H_
