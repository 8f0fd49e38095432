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
// that several ranks of one machine may share a file: lines interleave, bytes
// do not. Nothing is buffered between calls. Not thread-safe: one writer a
// thread.
//
//   auto writer = RecordWriter::Open("run.jsonl");
//   if (!writer.ok()) return writer.status();
//   RETURN_IF_ERROR((*writer)->Write(run));
//   RETURN_IF_ERROR((*writer)->Write(steps));  // std::vector<StepRecord>
//   return (*writer)->Close();
class RecordWriter {
 public:
  // Creates the file where it is missing (its folder must exist) and appends
  // where it is not. A torn last line of an earlier run is closed by a newline,
  // so that it cannot swallow the next record. `path` is taken as it is:
  // resolve it against BUILD_WORKING_DIRECTORY first.
  static absl::StatusOr<std::unique_ptr<RecordWriter>> Open(
      const std::string& path);

  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  ~RecordWriter();  // closes, ignoring errors

  absl::Status Write(const Record& record);
  // All of them by one write(2): the cheapest way to hand over the steps since
  // the last log step.
  absl::Status Write(absl::Span<const StepRecord> steps);

  // Further writes fail. Closing twice is harmless.
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
