#include "samplers/datasets/text.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// The one file of a folder.
absl::StatusOr<std::string> OnlyFileIn(const std::string& folder) {
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
    return absl::UnavailableError(absl::StrCat("text: cannot list the folder ",
                                               folder, ": ", error.message()));
  }
  if (files.size() == 1) return files.front();
  return absl::InvalidArgumentError(
      absl::StrCat("text: the folder ", folder, " holds ", files.size(),
                   " files; name the one to read by --data_dir"));
}

absl::StatusOr<std::string> FindFile(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "text needs a file: name it, or a folder with it alone, by --data_dir");
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return OnlyFileIn(path);
  return path;
}

absl::Status TooShort(const std::string& path, int64_t file_bytes, Split split,
                      int64_t split_bytes, int64_t sequence_length) {
  return absl::InvalidArgumentError(absl::StrCat(
      "text: ", path, " has ", file_bytes, " bytes, ", split_bytes,
      " of them for the ", SplitName(split), " split, but a window has ",
      sequence_length + 1, " (", sequence_length,
      " tokens and the one after the last); take a longer file or a smaller "
      "--sequence_length"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Text>> Text::Open(const std::string& path,
                                                 Split split, int64_t size,
                                                 int64_t sequence_length) {
  if (size < 0 || sequence_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: the ", SplitName(split), " split is to have ", size,
                     " examples of ", sequence_length,
                     " tokens; it must be 0 or more of 1 or more"));
  }
  const absl::StatusOr<std::string> found = FindFile(path);
  if (!found.ok()) return found.status();
  absl::StatusOr<MappedFile> file = MappedFile::Open(*found);
  if (!file.ok()) return file.status();
  const int64_t bytes = static_cast<int64_t>(file->bytes().size());
  const int64_t test_bytes = bytes / 10;
  const bool train = split == Split::kTrain;
  const int64_t first_byte = train ? 0 : bytes - test_bytes;
  const int64_t split_bytes = train ? bytes - test_bytes : test_bytes;
  const int64_t windows = split_bytes / (sequence_length + 1);
  if (windows == 0)
    return TooShort(*found, bytes, split, split_bytes, sequence_length);
  return absl::WrapUnique(new Text(*std::move(file), first_byte,
                                   std::min(size, windows), sequence_length));
}

Text::Text(MappedFile file, int64_t first_byte, int64_t size,
           int64_t sequence_length)
    : file_(std::move(file)),
      first_byte_(first_byte),
      size_(size),
      sequence_length_(sequence_length) {}

Batch Text::Gather(absl::Span<const int64_t> indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, sequence_length_}, at::kLong),
              at::empty({count, sequence_length_}, at::kLong)};
  int64_t* tokens = batch.data.mutable_data_ptr<int64_t>();
  int64_t* next_tokens = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_, "text: there is no example ",
                      index, "; the size is ", size_);
    const uint8_t* window =
        file_.bytes().data() + first_byte_ + index * (sequence_length_ + 1);
    tokens = std::copy_n(window, sequence_length_, tokens);
    next_tokens = std::copy_n(window + 1, sequence_length_, next_tokens);
  }
  return batch;
}

}  // namespace rankwise
