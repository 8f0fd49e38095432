#include "trainers/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// Linux writes at most about 2 GiB in one call.
constexpr size_t kLargestWriteBytes = size_t{1} << 30;

absl::Status SyncFolder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path() / ".";
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (synced) return absl::OkStatus();
  return absl::ErrnoToStatus(error,
                             absl::StrCat("cannot flush the folder ", folder));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(
    const std::string& path) {
  const std::string temporary_path = path + kTemporarySuffix;
  const int fd = open(temporary_path.c_str(),
                      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot create ", temporary_path));
  return absl::WrapUnique(new DurableFile(path, fd));
}

DurableFile::DurableFile(std::string path, int fd)
    : path_(std::move(path)),
      temporary_path_(path_ + kTemporarySuffix),
      fd_(fd) {}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_path_.c_str());
}

absl::Status DurableFile::Append(const void* data, size_t size_bytes) {
  const char* next = static_cast<const char*>(data);
  const char* const end = next + size_bytes;
  while (next < end) {
    const size_t wanted = std::min<size_t>(end - next, kLargestWriteBytes);
    const ssize_t written = write(fd_, next, wanted);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    next += written;
    written_bytes_ += written;
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Commit() {
  if (fsync(fd_) != 0) return Failed("flush");
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0)
    return Failed("rename");
  close(fd_);
  fd_ = -1;
  return SyncFolder(path_);
}

absl::Status DurableFile::Failed(const char* attempted) const {
  return absl::ErrnoToStatus(
      errno,
      absl::StrCat("cannot ", attempted, " ", temporary_path_, " after ",
                   written_bytes_, " bytes (", path_, " is left as it was)"));
}

}  // namespace rankwise
