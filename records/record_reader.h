// Reads record files. Every error names the file and the line.
#ifndef RANKWISE_RECORDS_RECORD_READER_H_
#define RANKWISE_RECORDS_RECORD_READER_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Holds one block of the file at a time, and of a line that is longer all of
// it.
//
//   LineReader lines(path);
//   while (lines.Next()) Use(lines.line());
//   return lines.status();
class LineReader {
 public:
  explicit LineReader(const std::string& path, size_t block_bytes = 1 << 20);

  // Goes to the next line. False at the end of the file, and where the file
  // cannot be read: then status() says why.
  bool Next();

  // Without its line end, "\n" or "\r\n". Valid until the next call of Next().
  absl::string_view line() const { return line_; }
  // Only the last line of a file may have none.
  bool has_newline() const { return has_newline_; }
  int64_t number() const { return number_; }  // from 1
  const absl::Status& status() const { return status_; }

 private:
  // Reads one more block behind what is left; false at the end of the file.
  bool Fill();
  void Fail();  // of what errno says

  const std::string path_;
  const size_t block_bytes_;
  std::unique_ptr<FILE, int (*)(FILE*)> file_;
  std::string buffer_;
  size_t at_ = 0;  // of the next line in buffer_
  absl::string_view line_;
  bool has_newline_ = false;
  int64_t number_ = 0;
  absl::Status status_;
};

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_READER_H_
