// The lines of a record file, read in blocks.

#ifndef RECORDS_LINE_READER_H_
#define RECORDS_LINE_READER_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise {

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

#endif  // RECORDS_LINE_READER_H_
