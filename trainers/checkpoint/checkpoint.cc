#include "trainers/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "trainers/checkpoint/checksum.h"
#include "trainers/checkpoint/durable_file.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step_";
constexpr char kSuffix[] = ".safetensors";
constexpr char kSupersededSuffix[] = ".superseded";

constexpr char kReservedPrefix[] = "rankwise.";
constexpr char kVersionKey[] = "rankwise.checkpoint_version";
constexpr char kStepKey[] = "rankwise.step";
constexpr char kEpochKey[] = "rankwise.epoch";
constexpr char kPositionKey[] = "rankwise.position";
constexpr char kChecksumKey[] = "rankwise.checksum";

constexpr int64_t kVersion = 1;

// A file of the folder whose name is that of a checkpoint.
struct StoredFile {
  int64_t step = 0;
  std::string path;
};

std::optional<int64_t> StepOfName(absl::string_view name) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) ||
      !absl::ConsumeSuffix(&name, kSuffix) || !absl::SimpleAtoi(name, &step) ||
      step < 0) {
    return std::nullopt;
  }
  return step;
}

absl::Status FolderError(absl::string_view attempted, const std::string& path,
                         const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot ", attempted, " ", path));
}

// The names in `dir`; none when it does not exist.
absl::StatusOr<std::vector<std::string>> ListNames(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator item(dir, error);
  for (; !error && item != fs::directory_iterator(); item.increment(error)) {
    names.push_back(item->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return FolderError("read the checkpoint folder", dir, error);
  }
  return names;
}

// Newest first.
absl::StatusOr<std::vector<StoredFile>> ListCheckpoints(
    const std::string& dir) {
  const auto names = ListNames(dir);
  if (!names.ok()) return names.status();
  std::vector<StoredFile> files;
  for (const std::string& name : *names) {
    if (const auto step = StepOfName(name))
      files.push_back({*step, fs::path(dir) / name});
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  return files;
}

// A save that was killed left its file behind.
absl::Status RemoveLeftovers(const std::string& dir) {
  const auto names = ListNames(dir);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    absl::string_view stem = name;
    std::error_code error;
    if (absl::ConsumeSuffix(&stem, kTemporarySuffix) && StepOfName(stem)) {
      fs::remove(fs::path(dir) / name, error);
      if (error) return FolderError("remove the left-over file", name, error);
    }
  }
  return absl::OkStatus();
}

// Over the tensors (by name) and the metadata, whatever their order in the
// file.
std::string ChecksumOf(const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Checksum checksum;
  for (const auto& [key, value] : metadata) {
    if (key == kChecksumKey) continue;
    checksum.Add(key);
    checksum.Add(value);
  }
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(),
                                                     tensors.end());
  for (const auto& [name, tensor] : by_name) {
    checksum.Add(name);
    checksum.Add(c10::toString(tensor.scalar_type()));
    checksum.Add(tensor.sizes().data(),
                 tensor.sizes().size() * sizeof(int64_t));
    checksum.Add(tensor.const_data_ptr(), tensor.nbytes());
  }
  return absl::StrFormat("%016x", checksum.value());
}

std::map<std::string, std::string> FullMetadata(const Checkpoint& checkpoint) {
  auto metadata = checkpoint.metadata;
  metadata["format"] = "pt";
  metadata[kVersionKey] = absl::StrCat(kVersion);
  metadata[kStepKey] = absl::StrCat(checkpoint.step);
  metadata[kEpochKey] = absl::StrCat(checkpoint.epoch);
  metadata[kPositionKey] = absl::StrCat(checkpoint.position);
  return metadata;
}

absl::Status CheckCallersMetadata(const Checkpoint& checkpoint) {
  for (const auto& [key, value] : checkpoint.metadata) {
    if (key == "format" || absl::StartsWith(key, kReservedPrefix)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the checkpoint metadata name '", key, "' is reserved"));
    }
  }
  return absl::OkStatus();
}

// Takes the whole number `key` out of `metadata`.
absl::Status TakeNumber(std::map<std::string, std::string>& metadata,
                        const char* key, int64_t& number) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    return absl::DataLossError(
        absl::StrCat("is not a rankwise checkpoint (no ", key, ")"));
  }
  if (!absl::SimpleAtoi(found->second, &number) || number < 0) {
    return absl::DataLossError(
        absl::StrCat(key, " '", found->second, "' is not a whole number"));
  }
  metadata.erase(found);
  return absl::OkStatus();
}

absl::Status CheckWhole(const SafetensorsContents& contents) {
  const auto written = contents.metadata.find(kChecksumKey);
  if (written == contents.metadata.end()) {
    return absl::DataLossError(
        absl::StrCat("is not a rankwise checkpoint (no ", kChecksumKey, ")"));
  }
  const std::string found = ChecksumOf(contents.tensors, contents.metadata);
  if (found == written->second) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the contents have checksum ", found, " but ",
                   written->second, " was written: the file was changed"));
}

absl::StatusOr<Checkpoint> Decode(SafetensorsContents contents,
                                  int64_t step_of_name) {
  absl::Status status = CheckWhole(contents);
  Checkpoint checkpoint;
  auto& metadata = contents.metadata;
  int64_t version = 0;
  if (status.ok()) status = TakeNumber(metadata, kVersionKey, version);
  if (status.ok() && version != kVersion) {
    status = absl::DataLossError(
        absl::StrCat("has checkpoint version ", version,
                     "; this program reads version ", kVersion));
  }
  if (status.ok()) status = TakeNumber(metadata, kStepKey, checkpoint.step);
  if (status.ok()) status = TakeNumber(metadata, kEpochKey, checkpoint.epoch);
  if (status.ok())
    status = TakeNumber(metadata, kPositionKey, checkpoint.position);
  if (status.ok() && checkpoint.step != step_of_name) {
    status = absl::DataLossError(absl::StrCat("holds step ", checkpoint.step,
                                              ", not the step of its name"));
  }
  if (!status.ok()) return status;
  metadata.erase(kChecksumKey);
  metadata.erase("format");
  checkpoint.metadata = std::move(metadata);
  checkpoint.tensors = std::move(contents.tensors);
  return checkpoint;
}

absl::StatusOr<Checkpoint> Load(const StoredFile& file) {
  auto contents = LoadSafetensors(file.path);
  if (!contents.ok()) return contents.status();
  auto checkpoint = Decode(*std::move(contents), file.step);
  if (checkpoint.ok()) return checkpoint;
  return absl::Status(
      checkpoint.status().code(),
      absl::StrCat(file.path, ": ", checkpoint.status().message()));
}

// Tensors as they will stand in the file; copies only those that are elsewhere
// or not contiguous.
absl::StatusOr<NamedTensors> ToDense(const NamedTensors& tensors) {
  NamedTensors dense;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != torch::kStrided) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the checkpoint's tensor '", name, "' is not a dense tensor"));
    }
    dense.emplace_back(name, tensor.detach().cpu().contiguous());
  }
  return dense;
}

// Deletes all but the `keep_last` newest up to `step`, and sets later ones
// aside.
absl::Status Prune(const std::string& dir, int64_t step, int keep_last) {
  const auto files = ListCheckpoints(dir);
  if (!files.ok()) return files.status();
  int kept = 0;
  for (const StoredFile& file : *files) {
    std::error_code error;
    if (file.step > step) {
      fs::rename(file.path, file.path + kSupersededSuffix, error);
    } else if (++kept > keep_last) {
      fs::remove(file.path, error);
    }
    if (error)
      return FolderError("remove the old checkpoint", file.path, error);
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointStore::CheckpointStore(std::string dir, int keep_last)
    : dir_(std::move(dir)), keep_last_(std::max(keep_last, 1)) {}

std::string CheckpointStore::Path(int64_t step) const {
  return fs::path(dir_) / absl::StrFormat("%s%08d%s", kPrefix, step, kSuffix);
}

absl::Status CheckpointStore::Save(const Checkpoint& checkpoint) {
  absl::Status status = CheckCallersMetadata(checkpoint);
  if (!status.ok()) return status;
  const auto tensors = ToDense(checkpoint.tensors);
  if (!tensors.ok()) return tensors.status();
  std::error_code error;
  fs::create_directories(dir_, error);
  if (error) return FolderError("create the checkpoint folder", dir_, error);
  status = RemoveLeftovers(dir_);
  if (!status.ok()) return status;
  auto metadata = FullMetadata(checkpoint);
  metadata[kChecksumKey] = ChecksumOf(*tensors, metadata);
  status = SaveSafetensors(Path(checkpoint.step), *tensors, metadata);
  return status.ok() ? Prune(dir_, checkpoint.step, keep_last_) : status;
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::LoadLatest(
    std::vector<std::string>* warnings) {
  const auto files = ListCheckpoints(dir_);
  if (!files.ok()) return files.status();
  std::vector<std::string> reasons;
  for (const StoredFile& file : *files) {
    auto checkpoint = Load(file);
    if (checkpoint.ok()) {
      for (const std::string& reason : reasons) {
        warnings->push_back(absl::StrCat("checkpoint passed over: ", reason));
      }
      return *std::move(checkpoint);
    }
    reasons.emplace_back(checkpoint.status().message());
  }
  if (reasons.empty()) return std::nullopt;
  return absl::DataLossError(
      absl::StrCat("none of the ", reasons.size(), " checkpoints in ", dir_,
                   " can be used; start without --resume, or with another "
                   "--checkpoint_dir:\n  ",
                   absl::StrJoin(reasons, "\n  ")));
}

}  // namespace rankwise
