#include "records/record_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "records/record_json.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// A run record's line is about 2 KB, a step's about 300 bytes.
constexpr size_t kInitialBufferBytes = 4096;

// Whether the file is not empty and does not end in a newline.
bool EndsInTornLine(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  return file.good() && last != '\n';
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordWriter>> RecordWriter::Open(
    const std::string& path) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    const int error = errno;
    return absl::ErrnoToStatus(
        error, absl::StrCat("opening the record file ", path,
                            error == ENOENT ? " (its folder must exist)" : ""));
  }
  std::unique_ptr<RecordWriter> writer(new RecordWriter(path, fd));
  if (EndsInTornLine(path)) {
    writer->buffer_.push_back('\n');
    RETURN_IF_ERROR(writer->Flush());
  }
  return writer;
}

RecordWriter::RecordWriter(std::string path, int fd)
    : path_(std::move(path)), fd_(fd) {
  buffer_.reserve(kInitialBufferBytes);
}

RecordWriter::~RecordWriter() { Close().IgnoreError(); }

absl::Status RecordWriter::Write(const Record& record) {
  AppendJsonLine(record, &buffer_);
  buffer_.push_back('\n');
  return Flush();
}

absl::Status RecordWriter::Write(absl::Span<const StepRecord> steps) {
  if (steps.empty()) return absl::OkStatus();
  for (const StepRecord& step : steps) {
    AppendJsonLine(step, &buffer_);
    buffer_.push_back('\n');
  }
  return Flush();
}

absl::Status RecordWriter::Flush() {
  size_t written = 0;
  int error = fd_ < 0 ? EBADF : 0;
  while (error == 0 && written < buffer_.size()) {
    const ssize_t n =
        ::write(fd_, buffer_.data() + written, buffer_.size() - written);
    if (n >= 0) {
      written += n;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  const size_t wanted = buffer_.size();
  buffer_.clear();
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(
      error, absl::StrCat("writing records to ", path_, ": ", written, " of ",
                          wanted, " bytes written"));
}

absl::Status RecordWriter::Close() {
  if (fd_ < 0) return absl::OkStatus();
  const int result = ::close(std::exchange(fd_, -1));
  if (result == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("closing the record file ", path_));
}

}  // namespace rankwise
