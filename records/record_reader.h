// Reads record files. Every error names the file and the line.
#ifndef RANKWISE_RECORDS_RECORD_READER_H_
#define RANKWISE_RECORDS_RECORD_READER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "records/record.h"

namespace rankwise {

struct ReadOptions {
  // A torn line is left by a kill during a write: the last line of the file
  // without its newline, or a line that does not end in '}'. If true, torn
  // lines are skipped and listed in ReadSummary; otherwise they are errors.
  bool tolerate_torn_lines = false;
};

// Counts of a reader's records and of the lines it skipped.
struct ReadSummary {
  int64_t records = 0;
  std::vector<int64_t> torn_lines;  // line numbers, from 1
  int64_t unknown_kinds = 0;        // records from a newer minor version
};

// Calls `visit` with each record in file order. An error from `visit` stops the
// reading and is returned with file and line prepended. Fails if the file
// cannot be read or has no records, at the first malformed line, at a run
// record of another major version, and at a record whose rank has no preceding
// run record. Unknown kinds are skipped if the file's run records have a newer
// minor version than this reader, and rejected otherwise.
absl::StatusOr<ReadSummary> VisitRecords(
    const std::string& path, const ReadOptions& options,
    const std::function<absl::Status(const Record&)>& visit);

absl::StatusOr<std::vector<Record>> ReadRecords(
    const std::string& path, const ReadOptions& options = {});

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_READER_H_
