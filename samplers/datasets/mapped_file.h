// Lists and memory-maps the files of datasets. Internal to this folder.
#ifndef RANKWISE_SAMPLERS_DATASETS_MAPPED_FILE_H_
#define RANKWISE_SAMPLERS_DATASETS_MAPPED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

// A whole file, memory-mapped read-only; the last copy unmaps it. Reading past
// the end of a file that another process has truncated raises SIGBUS.
struct MappedFile {
  std::shared_ptr<const uint8_t> data;  // nullptr if the file is empty
  int64_t size = 0;                     // bytes
};

// Returns NotFound if there is no such file; otherwise the operating system's
// error, with the path.
absl::StatusOr<MappedFile> OpenMapped(const std::string& path);

// Returns the paths of the regular files in a folder, sorted, except those
// whose name begins with a dot. Unavailable if the folder cannot be listed.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder);

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_MAPPED_FILE_H_
