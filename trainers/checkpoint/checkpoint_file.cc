#include "trainers/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainers/checkpoint/checksum.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

constexpr char kReservedPrefix[] = "rankwise.";
constexpr char kVersionKey[] = "rankwise.checkpoint_version";
constexpr char kStepKey[] = "rankwise.step";
constexpr char kEpochKey[] = "rankwise.epoch";
constexpr char kPositionKey[] = "rankwise.position";
constexpr char kShardKey[] = "rankwise.shard";  // of several
constexpr char kChecksumKey[] = "rankwise.checksum";

constexpr int64_t kVersion = 1;

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

// "1/2": the second of two.
std::string ShardText(const CheckpointName& name) {
  return absl::StrCat(name.shard, "/", name.num_shards);
}

std::map<std::string, std::string> FullMetadata(const Checkpoint& checkpoint,
                                                const CheckpointName& name) {
  auto metadata = checkpoint.metadata;
  metadata["format"] = "pt";
  metadata[kVersionKey] = absl::StrCat(kVersion);
  metadata[kStepKey] = absl::StrCat(checkpoint.step);
  metadata[kEpochKey] = absl::StrCat(checkpoint.epoch);
  metadata[kPositionKey] = absl::StrCat(checkpoint.position);
  if (name.num_shards > 1) metadata[kShardKey] = ShardText(name);
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

// That the file is the shard that its name says.
absl::Status TakeShard(std::map<std::string, std::string>& metadata,
                       const CheckpointName& name) {
  const auto found = metadata.find(kShardKey);
  const std::string shard = found == metadata.end() ? "0/1" : found->second;
  if (shard != ShardText(name)) {
    return absl::DataLossError(absl::StrCat(
        "holds shard ", shard, ", not ", ShardText(name), " as its name says"));
  }
  if (found != metadata.end()) metadata.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Decode(SafetensorsContents contents,
                                  const CheckpointName& name) {
  absl::Status status;
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
  if (status.ok() && checkpoint.step != name.step) {
    status = absl::DataLossError(absl::StrCat("holds step ", checkpoint.step,
                                              ", not the step of its name"));
  }
  if (status.ok()) status = TakeShard(metadata, name);
  if (!status.ok()) return status;
  metadata.erase(kChecksumKey);
  metadata.erase("format");
  checkpoint.metadata = std::move(metadata);
  checkpoint.tensors = std::move(contents.tensors);
  return checkpoint;
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

}  // namespace

absl::StatusOr<Checkpoint> LoadCheckpointFile(
    const std::string& path, const CheckpointName& name,
    const std::set<std::string>& needed) {
  auto header = LoadSafetensorsHeader(path);
  if (!header.ok()) return header.status();
  SafetensorsContents contents = {{}, std::move(header->metadata)};
  absl::Status status;
  if (needed.empty() ||
      std::any_of(
          header->entries.begin(), header->entries.end(),
          [&](const TensorEntry& e) { return needed.count(e.name) > 0; })) {
    auto whole = LoadSafetensors(path);
    if (!whole.ok()) return whole.status();
    contents = *std::move(whole);
    status = CheckWhole(contents);
  }
  if (status.ok()) {
    auto checkpoint = Decode(std::move(contents), name);
    if (checkpoint.ok()) return checkpoint;
    status = checkpoint.status();
  }
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<CheckpointFile> CheckpointFile::Encode(
    const Checkpoint& checkpoint, const CheckpointName& name) {
  const absl::Status status = CheckCallersMetadata(checkpoint);
  if (!status.ok()) return status;
  auto tensors = ToDense(checkpoint.tensors);
  if (!tensors.ok()) return tensors.status();
  CheckpointFile file;
  file.tensors_ = *std::move(tensors);
  file.metadata_ = FullMetadata(checkpoint, name);
  file.metadata_[kChecksumKey] = ChecksumOf(file.tensors_, file.metadata_);
  return file;
}

absl::Status CheckpointFile::Save(const std::string& path) const {
  return SaveSafetensors(path, tensors_, metadata_);
}

}  // namespace rankwise
