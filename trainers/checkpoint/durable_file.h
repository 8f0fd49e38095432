// A file that a reader sees whole or not at all, also after a crash or a full
// disk.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_DURABLE_FILE_H_
#define RANKWISE_TRAINERS_CHECKPOINT_DURABLE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise {

// Ends a file's name until it is committed.
inline constexpr char kTemporarySuffix[] = ".tmp";

// Writes aside and renames into place. Without a successful Commit(), `path`
// keeps whatever it held before and the file written aside is removed by the
// destructor. Not thread-safe.
//
//   ASSIGN_OR_RETURN(auto file, DurableFile::Create("model.safetensors"));
//   RETURN_IF_ERROR(file->Append(bytes.data(), bytes.size()));
//   return file->Commit();
class DurableFile {
 public:
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(
      const std::string& path);
  ~DurableFile();

  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(const void* data, size_t size_bytes);

  // Blocks until the bytes and the file's name are on the disk.
  absl::Status Commit();

 private:
  DurableFile(std::string path, int fd);
  absl::Status Failed(const char* attempted) const;

  const std::string path_;
  const std::string temporary_path_;
  int fd_;
  int64_t written_bytes_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_DURABLE_FILE_H_
