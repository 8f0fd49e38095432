#include "trainers/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

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
  std::error_code error;
  fs::create_directories(dir_, error);
  if (error) {
    return absl::ErrnoToStatus(
        error.value(),
        absl::StrCat("cannot create the checkpoint folder ", dir_));
  }
  RETURN_IF_ERROR(FindSuperseded(checkpoint.step));
  RETURN_IF_ERROR(SaveCheckpointFile(Path(checkpoint.step),
                                     {checkpoint.step, shard_, num_shards_},
                                     checkpoint));
  saved_step_ = checkpoint.step;
  return num_shards_ == 1 ? Prune() : absl::OkStatus();
}

// Before this rank has saved, no rank can have reached a later step.
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
  RETURN_IF_ERROR(CheckAllSaved());
  for (const CheckpointSet& set : superseded_) {
    RETURN_IF_ERROR(SupersedeSet(set));
  }
  superseded_.clear();
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir_));
  for (const CheckpointSet& set :
       SetsToRemove(sets, *saved_step_, num_shards_, keep_last_)) {
    RETURN_IF_ERROR(RemoveSet(set));
  }
  return RemoveLeftovers(dir_, *saved_step_);
}

// Opens each file by name: a listing cached by NFS may lack files that other
// hosts have just written, whereas open() asks the server.
absl::Status CheckpointStore::CheckAllSaved() const {
  for (int shard = 0; shard < num_shards_; ++shard) {
    const std::string name =
        FormatCheckpointName({*saved_step_, shard, num_shards_});
    const int file =
        open((fs::path(dir_) / name).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint of step ", *saved_step_, " in ", dir_, " lacks ",
          name, ": older ones are kept; prune after all ranks have saved"));
    }
    close(file);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointStore::HasOnlyInterrupted() const {
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir_));
  return !sets.empty() && absl::c_none_of(sets, [](const CheckpointSet& set) {
    return set.complete();
  });
}

CheckpointHeaders CheckpointStore::ReadLatestHeaders(int64_t last_step) const {
  const auto sets = ListCheckpointSets(dir_);
  if (!sets.ok()) return {};  // LoadLatest reports it
  const auto latest = absl::c_find_if(*sets, [&](const CheckpointSet& set) {
    return set.step <= last_step && set.complete();
  });
  return latest == sets->end() ? CheckpointHeaders()
                               : ReadCheckpointHeaders(*latest);
}

absl::StatusOr<std::optional<int64_t>> CheckpointStore::LoadLatest(
    std::vector<std::string>* warnings, const LoadFunction& load,
    int64_t last_step, const CheckpointHeaders& headers) {
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir_));
  std::vector<std::string> reasons;
  for (const CheckpointSet& set : sets) {
    if (set.step > last_step) continue;
    auto reader = CheckpointReader::Open(set, headers);
    const absl::Status loaded = reader.ok() ? load(*reader) : reader.status();
    if (loaded.ok()) {
      for (const std::string& reason : reasons) {
        warnings->push_back(absl::StrCat("checkpoint passed over: ", reason));
      }
      return set.step;
    }
    if (reader.ok() && !absl::IsDataLoss(loaded)) return loaded;
    reasons.emplace_back(loaded.message());
  }
  if (reasons.empty()) return std::nullopt;
  return absl::DataLossError(
      absl::StrCat("none of the ", reasons.size(), " checkpoints in ", dir_,
                   " can be used; start without --resume, or with another "
                   "--checkpoint_dir:\n  ",
                   absl::StrJoin(reasons, "\n  ")));
}

}  // namespace rankwise
