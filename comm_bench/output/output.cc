#include "comm_bench/output/output.h"

#include <cstdio>
#include <utility>

namespace rankwise::comm_bench {

absl::StatusOr<std::unique_ptr<Output>> Output::Open(
    const OutputConfig& config, const RunRecord& run,
    const EnvironmentRecord& environment) {
  std::unique_ptr<Output> output(new Output(config, run));
  if (!config.csv_file.empty() && output->shows()) {
    absl::StatusOr<std::unique_ptr<CsvWriter>> csv =
        CsvWriter::Open(config.csv_file, config.csv_context);
    if (!csv.ok()) return csv.status();
    output->csv_ = *std::move(csv);
  }
  if (config.record_file.empty()) return output;
  absl::StatusOr<std::unique_ptr<RecordWriter>> records =
      RecordWriter::Open(config.record_file);
  if (!records.ok()) return records.status();
  output->records_ = *std::move(records);
  absl::Status status = output->Write(run);
  if (status.ok()) status = output->Write(environment);
  if (!status.ok()) return status;
  return output;
}

void Output::Print(const std::string& text) const {
  if (!shows() || text.empty()) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// What is shown has been kept.
absl::Status Output::Add(const Row& row, const CollectiveRecord& samples) {
  absl::Status status = Write(samples);
  if (status.ok() && csv_ != nullptr) status = csv_->Write(row);
  if (!status.ok()) return status;
  Print(table_.Add(row));
  return absl::OkStatus();
}

absl::Status Output::Write(const Record& record) {
  return records_ == nullptr ? absl::OkStatus() : records_->Write(record);
}

}  // namespace rankwise::comm_bench
