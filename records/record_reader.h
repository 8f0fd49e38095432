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
  // A torn line is what a kill in the middle of a write leaves: the last line
  // of the file without its newline, or a line that does not end in '}'.
  // true: skip it and say where it is; false: fail.
  bool tolerate_torn_lines = false;
};

// What was passed over; each is also harmless.
struct ReadSummary {
  int64_t records = 0;
  std::vector<int64_t> torn_lines;  // their numbers in the file, from 1
  int64_t unknown_kinds = 0;        // of a newer minor version
};

// Calls `visit` with each record in file order. `visit` returns an error to
// stop; that error comes back with file and line before it. Fails when the
// file cannot be read or holds no record, at the first broken line, at a run
// record of another major version, and at a record whose rank has no run
// record above it. An unknown kind is skipped when the file's run records are
// of a newer minor version than this reader, and refused otherwise.
absl::StatusOr<ReadSummary> VisitRecords(
    const std::string& path, const ReadOptions& options,
    const std::function<absl::Status(const Record&)>& visit);

absl::StatusOr<std::vector<Record>> ReadRecords(
    const std::string& path, const ReadOptions& options = {});

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_READER_H_
