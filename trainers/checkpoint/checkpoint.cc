#include "trainers/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

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
  const absl::Status status = CheckSameSave(whole, part);
  if (!status.ok()) return status;
  for (auto& [name, tensor] : part.tensors) {
    const auto [known, is_new] = by_name.emplace(name, tensor);
    if (is_new) {
      whole.tensors.emplace_back(name, tensor);
    } else if (!known->second.equal(tensor)) {
      return absl::DataLossError(
          absl::StrCat("its tensor ", name,
                       " is not the one of the same name in an earlier "
                       "shard"));
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
    auto part =
        LoadCheckpointFile(path, {set.step, shard, set.num_shards},
                           shard == 0 ? std::set<std::string>() : needed);
    if (!part.ok()) return part.status();
    if (shard == 0) {
      whole = *part;
      whole.tensors.clear();
    }
    const absl::Status status = Unite(*std::move(part), whole, by_name);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(path, ": ", status.message()));
    }
  }
  return whole;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string dir, int keep_last, int shard,
                                 int num_shards)
    : dir_(std::move(dir)),
      keep_last_(std::max(keep_last, 1)),
      shard_(shard),
      num_shards_(num_shards) {}

std::string CheckpointStore::Path(int64_t step) const {
  return fs::path(dir_) / FormatCheckpointName({step, shard_, num_shards_});
}

absl::Status CheckpointStore::Save(const Checkpoint& checkpoint) {
  const auto file = CheckpointFile::Encode(
      checkpoint, {checkpoint.step, shard_, num_shards_});
  if (!file.ok()) return file.status();
  std::error_code error;
  fs::create_directories(dir_, error);
  if (error) {
    return absl::ErrnoToStatus(
        error.value(),
        absl::StrCat("cannot create the checkpoint folder ", dir_));
  }
  // Other ranks may be writing their shards.
  absl::Status status = RemoveLeftovers(dir_, [&](const CheckpointName& name) {
    return num_shards_ == 1 ||
           (name.shard == shard_ && name.num_shards == num_shards_);
  });
  if (status.ok()) status = FindSuperseded(checkpoint.step);
  if (status.ok()) status = file->Save(Path(checkpoint.step));
  if (!status.ok()) return status;
  saved_step_ = checkpoint.step;
  return num_shards_ == 1 ? Prune() : absl::OkStatus();
}

// Before this rank has saved, no rank can have gone on to a later step.
absl::Status CheckpointStore::FindSuperseded(int64_t step) {
  const auto sets = ListCheckpointSets(dir_);
  if (!sets.ok()) return sets.status();
  superseded_.clear();
  for (const CheckpointSet& set : *sets) {
    if (set.step > step ||
        (set.step == step && set.num_shards != num_shards_)) {
      superseded_.push_back(set);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::Prune() {
  if (!saved_step_) return absl::OkStatus();
  absl::Status status;
  for (const CheckpointSet& set : superseded_) {
    if (status.ok()) status = SupersedeSet(set);
  }
  if (!status.ok()) return status;
  superseded_.clear();
  const auto sets = ListCheckpointSets(dir_);
  if (!sets.ok()) return sets.status();
  status = CheckAllSaved(*sets);
  std::set<int64_t> kept_steps;
  for (const CheckpointSet& set : *sets) {
    if (set.step > *saved_step_ || !status.ok()) continue;
    const bool newest = kept_steps.size() < static_cast<size_t>(keep_last_) ||
                        kept_steps.count(set.step) > 0;
    if (set.complete() && newest) {
      kept_steps.insert(set.step);
    } else {
      status = RemoveSet(set);
    }
  }
  if (!status.ok()) return status;
  return RemoveLeftovers(dir_, [&](const CheckpointName& name) {
    return name.step <= *saved_step_;
  });
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
  const auto sets = ListCheckpointSets(dir_);
  if (!sets.ok()) return sets.status();
  std::vector<std::string> reasons;
  for (const CheckpointSet& set : *sets) {
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
