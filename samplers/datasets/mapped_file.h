#ifndef RANKWISE_SAMPLERS_DATASETS_MAPPED_FILE_H_
#define RANKWISE_SAMPLERS_DATASETS_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rankwise {

// A whole file, memory-mapped read-only; move-only, unmapped when destroyed.
// Bytes past the end of a file that another process cuts short must not be
// read: the kernel answers with SIGBUS.
class MappedFile {
 public:
  // NotFound when there is no such file; otherwise the operating system's
  // reason, with the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  const uint8_t* data_;  // null when the file is empty or moved from
  size_t size_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_MAPPED_FILE_H_
