#include "comm_bench/output/output.h"

#include <cstdio>

#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {

absl::StatusOr<std::unique_ptr<Output>> Output::Open(
    const OutputConfig& config, const RunRecord& run,
    const EnvironmentRecord& environment) {
  std::unique_ptr<Output> output(new Output(config.across, run.rank == 0));
  if (!config.csv_file.empty() && output->shows_) {
    ASSIGN_OR_RETURN(output->csv_,
                     CsvWriter::Open(config.csv_file, config.csv_context));
  }
  if (config.record_file.empty()) return output;
  ASSIGN_OR_RETURN(output->records_, RecordWriter::Open(config.record_file));
  RETURN_IF_ERROR(output->Write(run));
  RETURN_IF_ERROR(output->Write(environment));
  return output;
}

void Output::Print(const std::string& text) const {
  if (!shows_ || text.empty()) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Writes the row before showing it.
absl::Status Output::Add(const Row& row) {
  RETURN_IF_ERROR(Write(row.record));
  if (csv_ != nullptr) RETURN_IF_ERROR(csv_->Write(row));
  Print(table_.Add(row));
  return absl::OkStatus();
}

absl::Status Output::Write(const Record& record) {
  return records_ == nullptr ? absl::OkStatus() : records_->Write(record);
}

}  // namespace rankwise::comm_bench
