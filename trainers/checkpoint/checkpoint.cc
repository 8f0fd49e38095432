#include "trainers/checkpoint/checkpoint.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checksum.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

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

// Takes the text `key` out of `metadata`.
absl::StatusOr<std::string> Take(std::map<std::string, std::string>& metadata,
                                 const char* key) {
  const auto node = metadata.extract(key);
  if (!node.empty()) return node.mapped();
  return absl::DataLossError(
      absl::StrCat("is not a rankwise checkpoint (no ", key, ")"));
}

absl::Status TakeNumber(std::map<std::string, std::string>& metadata,
                        const char* key, int64_t& number) {
  ASSIGN_OR_RETURN(const std::string text, Take(metadata, key));
  if (absl::SimpleAtoi(text, &number) && number >= 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(key, " '", text, "' is not a whole number"));
}

absl::Status CheckWhole(SafetensorsContents& contents) {
  ASSIGN_OR_RETURN(const std::string written,
                   Take(contents.metadata, kChecksumKey));
  const std::string found = ChecksumOf(contents.tensors, contents.metadata);
  if (found == written) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the contents have checksum ", found, " but ", written,
                   " was written: the file was changed"));
}

// Checks that the file is the shard that its name says.
absl::Status TakeShard(std::map<std::string, std::string>& metadata,
                       const CheckpointName& name) {
  const std::string shard = Take(metadata, kShardKey).value_or("0/1");
  if (shard == ShardText(name)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "holds shard ", shard, ", not ", ShardText(name), " as its name says"));
}

absl::StatusOr<Checkpoint> Decode(SafetensorsContents contents,
                                  const CheckpointName& name) {
  Checkpoint checkpoint;
  auto& metadata = contents.metadata;
  int64_t version = 0;
  RETURN_IF_ERROR(TakeNumber(metadata, kVersionKey, version));
  if (version != kVersion) {
    return absl::DataLossError(absl::StrCat("has checkpoint version ", version,
                                            "; this program reads version ",
                                            kVersion));
  }
  RETURN_IF_ERROR(TakeNumber(metadata, kStepKey, checkpoint.step));
  RETURN_IF_ERROR(TakeNumber(metadata, kEpochKey, checkpoint.epoch));
  RETURN_IF_ERROR(TakeNumber(metadata, kPositionKey, checkpoint.position));
  if (checkpoint.step != name.step) {
    return absl::DataLossError(absl::StrCat("holds step ", checkpoint.step,
                                            ", not the step of its name"));
  }
  RETURN_IF_ERROR(TakeShard(metadata, name));
  metadata.erase(kChecksumKey);
  metadata.erase("format");
  checkpoint.metadata = std::move(metadata);
  checkpoint.tensors = std::move(contents.tensors);
  return checkpoint;
}

// The contents of `checkpoint`'s file.
absl::StatusOr<SafetensorsContents> Encode(const Checkpoint& checkpoint,
                                           const CheckpointName& name) {
  SafetensorsContents file;
  ASSIGN_OR_RETURN(file.tensors, InFileOrder(checkpoint.tensors));
  file.metadata = FullMetadata(checkpoint, name);
  file.metadata[kChecksumKey] = ChecksumOf(file.tensors, file.metadata);
  return file;
}

// `status` with the file that it is about.
absl::Status Of(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

// DataLoss, with the path, for a file that is torn, was changed, or is not what
// `name` says. Of a file without any of the tensors named in `needed` (empty:
// all are needed) the header alone is read: the result has no tensors, and a
// change of the others' bytes goes unnoticed.
absl::StatusOr<Checkpoint> LoadFile(const std::string& path,
                                    const CheckpointName& name,
                                    const std::set<std::string>& needed) {
  ASSIGN_OR_RETURN(SafetensorsContents contents, LoadSafetensors(path, needed));
  const absl::Status whole =
      contents.header_only ? absl::OkStatus() : CheckWhole(contents);
  if (!whole.ok()) return Of(path, whole);
  auto checkpoint = Decode(std::move(contents), name);
  if (!checkpoint.ok()) return Of(path, checkpoint.status());
  return checkpoint;
}

// That `part` comes from the save that `whole` comes from, as far as both say.
absl::Status CheckSameSave(const Checkpoint& whole, const Checkpoint& part) {
  if (part.epoch != whole.epoch || part.position != whole.position) {
    return absl::DataLossError("its epoch or position is not shard 0's");
  }
  for (const auto& [key, value] : part.metadata) {
    const auto found = whole.metadata.find(key);
    if (found != whole.metadata.end() && found->second != value) {
      return absl::DataLossError(
          absl::StrCat("its ", key, " is '", value, "', shard 0's is '",
                       found->second, "': they are of different runs"));
    }
  }
  return absl::OkStatus();
}

// Adds the tensors of `part`; one that several shards have must be the same.
absl::Status Unite(Checkpoint part, Checkpoint& whole,
                   std::map<std::string, torch::Tensor>& by_name) {
  RETURN_IF_ERROR(CheckSameSave(whole, part));
  for (auto& [name, tensor] : part.tensors) {
    const auto [known, is_new] = by_name.emplace(name, tensor);
    if (is_new) {
      whole.tensors.emplace_back(name, tensor);
    } else if (!known->second.equal(tensor)) {
      return absl::DataLossError(
          absl::StrCat("its tensor ", name,
                       " is not the one of the same name in an earlier shard"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> LoadSet(const CheckpointSet& set,
                                   const std::set<std::string>& needed) {
  if (!set.complete()) {
    return absl::DataLossError(
        absl::StrCat(set.MissingName(), " is missing: the checkpoint has ",
                     set.paths.size(), " of ", set.num_shards, " shards"));
  }
  Checkpoint whole;
  std::map<std::string, torch::Tensor> by_name;
  for (const auto& [shard, path] : set.paths) {
    // The first shard has what every rank needs: the random generators.
    ASSIGN_OR_RETURN(auto part,
                     LoadFile(path, {set.step, shard, set.num_shards},
                              shard == 0 ? std::set<std::string>() : needed));
    if (shard == 0) {
      whole = part;
      whole.tensors.clear();
    }
    const absl::Status united = Unite(std::move(part), whole, by_name);
    if (!united.ok()) return Of(path, united);
  }
  return whole;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string dir, int keep_last, int shard,
                                 int num_shards)
    : dir_(std::move(dir)),
      keep_last_(keep_last),
      shard_(shard),
      num_shards_(num_shards) {}

std::string CheckpointStore::Path(int64_t step) const {
  return fs::path(dir_) / FormatCheckpointName({step, shard_, num_shards_});
}

absl::Status CheckpointStore::Save(const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const auto file,
                   Encode(checkpoint, {checkpoint.step, shard_, num_shards_}));
  std::error_code error;
  fs::create_directories(dir_, error);
  if (error) {
    return absl::ErrnoToStatus(
        error.value(),
        absl::StrCat("cannot create the checkpoint folder ", dir_));
  }
  RETURN_IF_ERROR(FindSuperseded(checkpoint.step));
  RETURN_IF_ERROR(
      SaveSafetensors(Path(checkpoint.step), file.tensors, file.metadata));
  saved_step_ = checkpoint.step;
  return num_shards_ == 1 ? Prune() : absl::OkStatus();
}

// Before this rank has saved, no rank can have gone on to a later step.
absl::Status CheckpointStore::FindSuperseded(int64_t step) {
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir_));
  superseded_.clear();
  for (const CheckpointSet& set : sets) {
    if (set.step > step ||
        (set.step == step && set.num_shards != num_shards_)) {
      superseded_.push_back(set);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::Prune() {
  if (!saved_step_) return absl::OkStatus();
  for (const CheckpointSet& set : superseded_) {
    RETURN_IF_ERROR(SupersedeSet(set));
  }
  superseded_.clear();
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir_));
  RETURN_IF_ERROR(CheckAllSaved(sets));
  std::set<int64_t> kept_steps;
  for (const CheckpointSet& set : sets) {
    if (set.step > *saved_step_) continue;
    const bool newest = kept_steps.size() < static_cast<size_t>(keep_last_) ||
                        kept_steps.count(set.step) > 0;
    if (set.complete() && newest) {
      kept_steps.insert(set.step);
    } else {
      RETURN_IF_ERROR(RemoveSet(set));
    }
  }
  return RemoveLeftovers(dir_, *saved_step_);
}

absl::Status CheckpointStore::CheckAllSaved(
    const std::vector<CheckpointSet>& sets) const {
  for (const CheckpointSet& set : sets) {
    if (set.step != *saved_step_ || set.num_shards != num_shards_) continue;
    if (set.complete()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint of step ", set.step, " in ", dir_, " lacks ",
        set.MissingName(),
        ": older ones are kept; prune after all ranks have saved"));
  }
  return absl::NotFoundError(absl::StrCat(
      "the checkpoint of step ", *saved_step_, " is no longer in ", dir_));
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::LoadLatest(
    std::vector<std::string>* warnings, const CheckpointRequest& request) {
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir_));
  std::vector<std::string> reasons;
  for (const CheckpointSet& set : sets) {
    if (set.step > request.last_step) continue;
    auto checkpoint = LoadSet(set, request.tensors);
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
