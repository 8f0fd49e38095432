// Appends records to a file so that a killed run leaves whole lines.
#ifndef RANKWISE_RECORDS_RECORD_WRITER_H_
#define RANKWISE_RECORDS_RECORD_WRITER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "records/record.h"

namespace rankwise {

// Each Write is one write(2) of whole lines to a file opened with O_APPEND, so
// ranks on one machine may share a file: lines interleave, bytes do not.
// Nothing is buffered between calls. Not thread-safe: use one writer per
// thread.
//
//   auto writer = RecordWriter::Open("run.jsonl");
//   if (!writer.ok()) return writer.status();
//   RETURN_IF_ERROR((*writer)->Write(run));
//   RETURN_IF_ERROR((*writer)->Write(steps));  // std::vector<StepRecord>
//   return (*writer)->Close();
class RecordWriter {
 public:
  // Creates the file if it is missing (its folder must exist), else appends.
  // Terminates a torn last line with a newline, so that it cannot absorb the
  // next record. `path` is used unchanged: resolve it with UserPath() first.
  static absl::StatusOr<std::unique_ptr<RecordWriter>> Open(
      const std::string& path);

  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  ~RecordWriter();  // closes, ignoring errors

  absl::Status Write(const Record& record);
  // Writes all of them with one write(2): the cheapest way to write the steps
  // of a logging interval.
  absl::Status Write(absl::Span<const StepRecord> steps);

  // Closes the file; later writes fail. May be called again.
  absl::Status Close();

  const std::string& path() const { return path_; }

 private:
  RecordWriter(std::string path, int fd);
  absl::Status Flush();

  std::string path_;
  int fd_;
  std::string buffer_;  // empty between calls; keeps its capacity
};

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_WRITER_H_
