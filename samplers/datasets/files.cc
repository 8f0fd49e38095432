#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/mapped_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kPixelBytes = 3 * 32 * 32;
constexpr int64_t kRecordBytes = 1 + kPixelBytes;
constexpr int64_t kRecordsPerFile = 10000;
constexpr int64_t kFileBytes = kRecordsPerFile * kRecordBytes;
constexpr int64_t kNumClasses = 10;

constexpr char kReleaseFolder[] = "cifar-10-batches-bin";
constexpr char kHowToGet[] =
    "download the binary version of CIFAR-10, "
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, and unpack it "
    "with tar -xzf";

std::vector<std::string> FileNames(Split split) {
  if (split == Split::kTest) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
          "data_batch_4.bin", "data_batch_5.bin"};
}

// Returns the folder with the files: `dir`, or the archive's folder inside it.
absl::StatusOr<std::string> FindFolder(const std::string& dir, Split split) {
  if (dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cifar10 needs the folder of its files: ", kHowToGet,
        ", then name the resulting folder ", kReleaseFolder, " by --data_dir"));
  }
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
    if (error && error != std::errc::no_such_file_or_directory &&
        error != std::errc::not_a_directory) {
      return absl::UnavailableError(
          absl::StrCat("cifar10: cannot open ", dir, ": ", error.message()));
    }
    return absl::NotFoundError(absl::StrCat(
        "cifar10: ",
        std::filesystem::exists(dir, error)
            ? absl::StrCat(dir, " is not a folder")
            : absl::StrCat("there is no folder ", dir),
        "; ", kHowToGet, " so that ", dir,
        " holds data_batch_1.bin .. data_batch_5.bin and test_batch.bin, or "
        "the folder ",
        kReleaseFolder, " with them"));
  }
  const std::string first = FileNames(split).front();
  const std::string inner = absl::StrCat(dir, "/", kReleaseFolder);
  const bool is_inner = !std::filesystem::exists(dir + "/" + first, error) &&
                        std::filesystem::is_directory(inner, error);
  return is_inner ? inner : dir;
}

absl::Status MissingFile(const std::string& path, Split split) {
  return absl::NotFoundError(absl::StrCat(
      "cifar10: there is no file ", path, "; the ", SplitName(split),
      " split needs ", absl::StrJoin(FileNames(split), ", "),
      " there: ", kHowToGet));
}

absl::Status CheckSize(const std::string& path, int64_t bytes) {
  if (bytes == kFileBytes) return absl::OkStatus();
  const std::string what =
      bytes > kFileBytes ? absl::StrCat(", with foreign data from byte offset ",
                                        kFileBytes, " on")
                         : absl::StrCat(": it ends at byte offset ", bytes,
                                        ", in record ", bytes / kRecordBytes);
  return absl::DataLossError(
      absl::StrCat("cifar10: ", path, " has ", bytes, " bytes", what,
                   "; a file of the binary release has ", kFileBytes,
                   " bytes (", kRecordsPerFile, " records of ", kRecordBytes,
                   "): ", kHowToGet, " again"));
}

// Appends the labels of a file of the right size to `labels`.
absl::Status ReadLabels(const std::string& path, const uint8_t* bytes,
                        std::vector<uint8_t>& labels) {
  for (int64_t record = 0; record < kRecordsPerFile; ++record) {
    const int64_t offset = record * kRecordBytes;
    const uint8_t label = bytes[offset];
    if (label >= kNumClasses) {
      return absl::DataLossError(absl::StrCat(
          "cifar10: ", path, " has the label ", label, " at byte offset ",
          offset, " (record ", record,
          "), but labels are 0 .. 9: the file is not CIFAR-10's binary "
          "version, or is damaged; ",
          kHowToGet, " again"));
    }
    labels.push_back(label);
  }
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> OpenBatch(const std::string& path, Split split,
                                     std::vector<uint8_t>& labels) {
  absl::StatusOr<MappedFile> file = OpenMapped(path);
  if (absl::IsNotFound(file.status())) return MissingFile(path, split);
  if (!file.ok()) return file;
  RETURN_IF_ERROR(CheckSize(path, file->size));
  RETURN_IF_ERROR(ReadLabels(path, file->data.get(), labels));
  return file;
}

// Returns the only file of a folder.
absl::StatusOr<std::string> OnlyFileIn(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(folder));
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

DatasetOr OpenCifar10(const DatasetConfig& config, Split split) {
  const int64_t size = config.size(split);
  const int64_t available =
      kRecordsPerFile * static_cast<int64_t>(FileNames(split).size());
  if (size > available) {
    return absl::InvalidArgumentError(
        absl::StrCat("cifar10: ", size, " examples of the ", SplitName(split),
                     " split are requested; it has ", available));
  }
  ASSIGN_OR_RETURN(std::string folder, FindFolder(config.data_dir, split));
  std::vector<MappedFile> files;
  std::vector<uint8_t> labels;
  labels.reserve(available);
  for (const std::string& name : FileNames(split)) {
    ASSIGN_OR_RETURN(MappedFile file,
                     OpenBatch(absl::StrCat(folder, "/", name), split, labels));
    files.push_back(std::move(file));
  }
  labels.resize(size);
  return std::make_unique<WrittenDataset<uint8_t, int64_t>>(
      DatasetFacts{.name = "cifar10",
                   .size = size,
                   .example_shape = {3, 32, 32},
                   .num_classes = kNumClasses},
      [files, labels](int64_t index, uint8_t* pixels, int64_t* label) {
        const uint8_t* record = files[index / kRecordsPerFile].data.get() +
                                index % kRecordsPerFile * kRecordBytes;
        *label = labels[index];
        std::memcpy(pixels, record + 1, kPixelBytes);
      });
}

DatasetOr OpenText(const DatasetConfig& config, Split split) {
  const int64_t sequence_length = config.sequence_length;
  ASSIGN_OR_RETURN(const std::string found, FindFile(config.data_dir));
  ASSIGN_OR_RETURN(MappedFile file, OpenMapped(found));
  const int64_t bytes = file.size;
  const int64_t test_bytes = bytes / 10;
  const bool train = split == Split::kTrain;
  const int64_t first_byte = train ? 0 : bytes - test_bytes;
  const int64_t split_bytes = train ? bytes - test_bytes : test_bytes;
  const int64_t windows = split_bytes / (sequence_length + 1);
  if (windows == 0)
    return TooShort(found, bytes, split, split_bytes, sequence_length);
  return std::make_unique<WrittenDataset<int64_t, int64_t>>(
      DatasetFacts{.name = "text",
                   .size = std::min(config.size(split), windows),
                   .example_shape = {sequence_length},
                   .target_shape = {sequence_length},
                   .num_classes = 256},
      [file, first_byte, sequence_length](int64_t index, int64_t* tokens,
                                          int64_t* next_tokens) {
        const uint8_t* window =
            file.data.get() + first_byte + index * (sequence_length + 1);
        std::copy_n(window, sequence_length, tokens);
        std::copy_n(window + 1, sequence_length, next_tokens);
      });
}

}  // namespace rankwise
