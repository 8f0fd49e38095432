#include "records/line_reader.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace rankwise {

LineReader::LineReader(const std::string& path, size_t block_bytes)
    : path_(path),
      block_bytes_(block_bytes),
      file_(std::fopen(path.c_str(), "rb"), &std::fclose) {
  if (file_ == nullptr) Fail();
}

void LineReader::Fail() {
  status_ =
      absl::ErrnoToStatus(errno, absl::StrCat("reading records from ", path_));
}

bool LineReader::Next() {
  size_t searched = at_;
  size_t newline = std::string::npos;
  while ((newline = buffer_.find('\n', searched)) == std::string::npos) {
    searched = buffer_.size() - at_;  // Fill moves what is left to the front
    if (!Fill()) break;
  }
  if (!status_.ok() || at_ == buffer_.size()) return false;
  has_newline_ = newline != std::string::npos;
  const size_t end = has_newline_ ? newline : buffer_.size();
  line_ = absl::string_view(buffer_).substr(at_, end - at_);
  if (has_newline_) absl::ConsumeSuffix(&line_, "\r");
  at_ = has_newline_ ? end + 1 : end;
  ++number_;
  return true;
}

bool LineReader::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  if (!status_.ok()) return false;
  const size_t kept = buffer_.size();
  buffer_.resize(kept + block_bytes_);
  const size_t n = std::fread(&buffer_[kept], 1, block_bytes_, file_.get());
  buffer_.resize(kept + n);
  if (std::ferror(file_.get())) Fail();
  return n > 0 && status_.ok();
}

}  // namespace rankwise
