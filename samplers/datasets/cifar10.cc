#include "samplers/datasets/cifar10.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

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

// The folder that holds the files: `dir`, or the one the archive makes in it.
absl::StatusOr<std::string> FindFolder(const std::string& dir, Split split) {
  if (dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cifar10 needs the folder of its files: ", kHowToGet,
        ", then name the resulting folder ", kReleaseFolder, " by --data_dir"));
  }
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
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
  if (bytes == Cifar10::kFileBytes) return absl::OkStatus();
  const std::string expected =
      absl::StrCat("; a file of the binary release has ", Cifar10::kFileBytes,
                   " bytes (", Cifar10::kRecordsPerFile, " records of ",
                   Cifar10::kRecordBytes, "): ", kHowToGet, " again");
  if (bytes > Cifar10::kFileBytes) {
    return absl::DataLossError(
        absl::StrCat("cifar10: ", path, " has ", bytes,
                     " bytes, with something foreign from byte offset ",
                     Cifar10::kFileBytes, " on", expected));
  }
  return absl::DataLossError(absl::StrCat(
      "cifar10: ", path, " has ", bytes, " bytes: it ends at byte offset ",
      bytes, ", in record ", bytes / Cifar10::kRecordBytes, expected));
}

// Appends the labels of a file of the right size to `labels`.
absl::Status ReadLabels(const std::string& path,
                        absl::Span<const uint8_t> bytes,
                        std::vector<uint8_t>& labels) {
  for (int64_t record = 0; record < Cifar10::kRecordsPerFile; ++record) {
    const int64_t offset = record * Cifar10::kRecordBytes;
    const uint8_t label = bytes[offset];
    if (label >= Cifar10::kNumClasses) {
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

absl::StatusOr<MappedFile> OpenFile(const std::string& path, Split split,
                                    std::vector<uint8_t>& labels) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return MissingFile(path, split);
  if (!file.ok()) return file;
  absl::Status checked = CheckSize(path, file->bytes().size());
  if (checked.ok()) checked = ReadLabels(path, file->bytes(), labels);
  if (!checked.ok()) return checked;
  return file;
}

}  // namespace

int64_t Cifar10::SizeOf(Split split) {
  return kRecordsPerFile * static_cast<int64_t>(FileNames(split).size());
}

absl::StatusOr<std::unique_ptr<Cifar10>> Cifar10::Open(const std::string& dir,
                                                       Split split,
                                                       int64_t size) {
  if (size < 0 || size > SizeOf(split)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cifar10: ", size, " examples of the ", SplitName(split),
                     " split are asked for; it has ", SizeOf(split)));
  }
  absl::StatusOr<std::string> folder = FindFolder(dir, split);
  if (!folder.ok()) return folder.status();
  std::vector<MappedFile> files;
  std::vector<uint8_t> labels;
  labels.reserve(SizeOf(split));
  for (const std::string& name : FileNames(split)) {
    absl::StatusOr<MappedFile> file =
        OpenFile(absl::StrCat(*folder, "/", name), split, labels);
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  labels.resize(size);
  return absl::WrapUnique(new Cifar10(std::move(files), std::move(labels)));
}

Cifar10::Cifar10(std::vector<MappedFile> files, std::vector<uint8_t> labels)
    : files_(std::move(files)), labels_(std::move(labels)) {}

Batch Cifar10::Gather(absl::Span<const int64_t> indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, 3, 32, 32}, at::kByte),
              at::empty({count}, at::kLong)};
  uint8_t* pixels = batch.data.mutable_data_ptr<uint8_t>();
  int64_t* labels = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(),
                      "cifar10: there is no example ", index, "; the size is ",
                      size());
    const uint8_t* record = files_[index / kRecordsPerFile].bytes().data() +
                            index % kRecordsPerFile * kRecordBytes;
    *labels++ = labels_[index];
    std::memcpy(pixels, record + 1, kPixelBytes);
    pixels += kPixelBytes;
  }
  return batch;
}

}  // namespace rankwise
