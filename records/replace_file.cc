#include "records/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

// Maps errno to a status that is neither bad usage nor undecided data
// (ExitCode, Complain): a failed write is a failure.
absl::Status Error(int error, const std::string& path) {
  const absl::Status status = absl::ErrnoToStatus(
      error, absl::StrCat("writing ", path,
                          error == ENOENT ? " (its folder must exist)" : ""));
  const bool failed =
      !absl::IsInvalidArgument(status) && !absl::IsFailedPrecondition(status);
  return failed ? status : absl::UnknownError(status.message());
}

// Returns the path of the file that `path` refers to or would create.
absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as in the kernel
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("writing ", path, ": it is a folder"));
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("writing ", path, ": it is not a regular file"));
  }
  fs::path file = path;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!fs::is_symlink(file, error)) return file.string();
    file = file.parent_path() / fs::read_symlink(file, error);
    if (error) break;
  }
  return Error(error ? error.value() : ELOOP, path);
}

std::string TemporaryBeside(const std::string& file) {
  return absl::StrCat(file, ".", ::getpid(), ".tmp");
}

bool Sync(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool synced = ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  errno = error;
  return synced;
}

// Makes the names in `folder` durable if the file system supports it (some
// network and FUSE file systems do not).
bool SyncNames(const fs::path& folder) {
  return Sync(folder.string()) || errno == EINVAL || errno == ENOTSUP;
}

}  // namespace

absl::Status ReplaceFile(const std::string& path,
                         const std::function<void(std::ostream&)>& write) {
  ASSIGN_OR_RETURN(const std::string target, FollowLinks(path));
  const std::string temporary = TemporaryBeside(target);
  errno = 0;
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (out) {
    write(out);
    out.close();
  }
  if (out && Sync(temporary) &&
      std::rename(temporary.c_str(), target.c_str()) == 0 &&
      SyncNames(fs::path(target).parent_path() / "."))
    return absl::OkStatus();
  const int error = errno == 0 ? EIO : errno;
  std::remove(temporary.c_str());
  return Error(error, path);
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  return ReplaceFile(path, [text](std::ostream& out) { out << text; });
}

absl::Status CheckReplaceable(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string target, FollowLinks(path));
  const std::string temporary = TemporaryBeside(target);
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return Error(errno, path);
  ::close(file);
  std::remove(temporary.c_str());
  return absl::OkStatus();
}

}  // namespace rankwise
