#include "samplers/datasets/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message)
                         : absl::UnavailableError(message);
}

absl::StatusOr<MappedFile> Map(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("inspect", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read ", path, ": it is not a regular file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile();
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Failed("map", path);
  const auto unmap = [data, size](const uint8_t*) { munmap(data, size); };
  return MappedFile{{static_cast<const uint8_t*>(data), unmap}, info.st_size};
}

}  // namespace

absl::StatusOr<MappedFile> OpenMapped(const std::string& path) {
  // O_NONBLOCK: opening a FIFO would otherwise block until it has a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Failed("open", path);
  auto file = Map(fd, path);
  close(fd);  // the mapping remains valid
  return file;
}

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!absl::StartsWith(name, ".") && entry->is_regular_file(ignored))
      files.push_back(entry->path().string());
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot list the folder ", folder, ": ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace rankwise
