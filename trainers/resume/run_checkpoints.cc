#include "trainers/resume/run_checkpoints.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/resume/agreement.h"
#include "trainers/resume/resume_check.h"
#include "trainers/resume/run_state.h"

namespace rankwise {
namespace {

constexpr char kConfigKey[] = "config";
constexpr char kEngineKey[] = "engine";

// A contiguous copy in host memory.
torch::Tensor Copy(const torch::Tensor& values) {
  return at::empty(values.sizes(), values.options().device(c10::kCPU))
      .copy_(values.detach());
}

// In place of the step of the checkpoint that a rank found.
constexpr int64_t kNoCheckpoint = -1;
constexpr int64_t kNotLoaded = -2;

absl::Status MakeFolder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directory(dir, error);
  if (!error && access(dir.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--checkpoint_dir=", dir, ": cannot be written to: ", error.message()));
}

absl::Status SeeDifferentCheckpoints(const Worker& worker,
                                     const std::vector<int64_t>& found) {
  const int64_t mine = found[static_cast<size_t>(worker.env.rank)];
  const auto other =
      absl::c_find_if(found, [&](int64_t theirs) { return theirs != mine; });
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: rank ", worker.env.rank, " and rank ", other - found.begin(),
      " see different checkpoints (steps ", mine, " and ", *other,
      "; below zero: none); --checkpoint_dir must be a folder that all "
      "machines share"));
}

}  // namespace

RunCheckpoints::RunCheckpoints(const TrainConfig& config, int64_t total_steps,
                               const Worker& worker, Model& model,
                               Optimizer& optimizer, ShardedState sharded,
                               EngineState engine)
    : config_(config),
      total_steps_(total_steps),
      worker_(worker),
      model_(model),
      optimizer_(optimizer),
      sharded_(std::move(sharded)),
      engine_(std::move(engine)) {}

absl::Status RunCheckpoints::Open() {
  const auto ranks =
      static_cast<size_t>(worker_.comm == nullptr ? worker_.env.world_size
                                                  : worker_.comm->world_size());
  std::vector<bool> saves(ranks);
  for (size_t i = 0; i < ranks; ++i)
    saves[i] = worker_.is_of_first_copy(static_cast<int>(i));
  if (!sharded_.shards.empty()) {
    const int64_t mine = SavesState(worker_, sharded_) ? 1 : 0;
    ASSIGN_OR_RETURN(const auto all,
                     GatherRanks(worker_, at::tensor({mine}, at::kLong)));
    for (size_t i = 0; i < all.size(); ++i)
      saves[i] = all[i].item<int64_t>() != 0;
  }
  const auto me = saves.begin() + worker_.env.rank;
  parts_ = static_cast<int>(absl::c_count(saves, true));
  const auto part = static_cast<int>(std::count(saves.begin(), me, true));
  const std::string& dir = config_.checkpoint.dir;
  store_.emplace(dir, config_.checkpoint.keep, *me ? part : 0, parts_);
  return AgreeOnSuccess("opening the checkpoint folder",
                        worker_.is_first() ? MakeFolder(dir) : absl::OkStatus(),
                        worker_);
}

absl::StatusOr<Checkpoint> RunCheckpoints::Capture(
    const Progress& progress) const {
  Checkpoint checkpoint;
  for (HeldBlock& held : HeldBlocks(worker_, model_, optimizer_, sharded_)) {
    if (!held.saved) continue;
    if (config_.checkpoint.async) held.block.values = Copy(held.block.values);
    checkpoint.tensors.push_back(std::move(held.block));
  }
  RETURN_IF_ERROR(AddProgress(progress, worker_, checkpoint));
  checkpoint.metadata[kConfigKey] =
      LossDecidingConfig(config_, worker_, total_steps_);
  if (engine_.save != nullptr) checkpoint.metadata[kEngineKey] = engine_.save();
  return checkpoint;
}

absl::StatusOr<Progress> RunCheckpoints::Restore(CheckpointReader& reader) {
  const Checkpoint& saved = reader.saved();
  const auto config = saved.metadata.find(kConfigKey);
  ASSIGN_OR_RETURN(
      const int64_t accumulate,
      CheckConfig(config == saved.metadata.end() ? "" : config->second,
                  LossDecidingConfig(config_, worker_, total_steps_), config_,
                  worker_));
  for (const HeldBlock& held :
       HeldBlocks(worker_, model_, optimizer_, sharded_)) {
    RETURN_IF_ERROR(reader.Read(held.block));
  }
  const auto engine = saved.metadata.find(kEngineKey);
  if (engine_.restore != nullptr && engine != saved.metadata.end())
    engine_.restore(engine->second);
  // The same number of steps of the epoch, in this run's micro-batches.
  const int64_t steps = (saved.position + accumulate - 1) / accumulate;
  ASSIGN_OR_RETURN(Progress progress,
                   RestoreProgress(reader, worker_, config_.seed));
  progress.position = steps * config_.accumulate;
  return progress;
}

absl::StatusOr<std::optional<Progress>> RunCheckpoints::Resume(
    bool after_restart) {
  bool interrupted = false;
  if (after_restart) {
    ASSIGN_OR_RETURN(interrupted, store_->HasOnlyInterrupted());
  }
  if (interrupted && worker_.is_first()) {
    std::fprintf(stderr,
                 "warning: the only checkpoint in %s is incomplete: its save "
                 "was interrupted\n",
                 config_.checkpoint.dir.c_str());
  }
  int64_t last_step = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> first_found;  // by rank
  for (;;) {
    std::vector<std::string> warnings;
    std::optional<Progress> progress;
    const auto restore = [&](CheckpointReader& reader) -> absl::Status {
      ASSIGN_OR_RETURN(progress, Restore(reader));
      return absl::OkStatus();
    };
    absl::StatusOr<std::optional<int64_t>> loaded = std::nullopt;
    if (!interrupted)
      loaded = store_->LoadLatest(&warnings, restore, last_step);
    // A rank that cannot load must not leave the others waiting: every rank
    // learns what each of them found.
    const int64_t mine =
        !loaded.ok() ? kNotLoaded : loaded->value_or(kNoCheckpoint);
    ASSIGN_OR_RETURN(auto gathered,
                     GatherRanks(worker_, at::tensor({mine}, at::kLong)));
    std::vector<int64_t> found;
    for (const torch::Tensor& step : gathered)
      found.push_back(step.item<int64_t>());
    const auto [least, most] = absl::c_minmax_element(found);
    if (worker_.is_first() || mine < *most) {
      for (const std::string& warning : warnings)
        std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    RETURN_IF_ERROR(loaded.status());
    if (*least == *most) return progress;
    if (first_found.empty()) first_found = found;
    if (*least < 0) return SeeDifferentCheckpoints(worker_, first_found);
    // A shard that only some ranks read is damaged: all ranks fall back to the
    // step that those could load.
    last_step = *least;
  }
}

absl::StatusOr<CheckpointRecord> RunCheckpoints::Write(
    const Checkpoint& checkpoint, double start_seconds) {
  try {
    RETURN_IF_ERROR(store_->Save(checkpoint));
  } catch (const std::exception& error) {  // as the ranks must agree
    return absl::InternalError(PlainMessage(error));
  }
  CheckpointRecord record;
  record.rank = worker_.env.rank;
  record.step = checkpoint.step;
  record.epoch = checkpoint.epoch;
  record.path = store_->Path(checkpoint.step);
  record.bytes = static_cast<int64_t>(std::filesystem::file_size(record.path));
  record.seconds = SteadySeconds() - start_seconds;
  return record;
}

absl::StatusOr<std::optional<CheckpointRecord>> RunCheckpoints::Save(
    const Progress& progress) {
  const double start = SteadySeconds();
  ASSIGN_OR_RETURN(std::optional<CheckpointRecord> complete, Finish());
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Capture(progress));
  const bool async = config_.checkpoint.async;
  if (SavesState(worker_, sharded_)) {
    writing_ = std::async(async ? std::launch::async : std::launch::deferred,
                          [this, start, checkpoint = std::move(checkpoint)] {
                            return Write(checkpoint, start);
                          });
  }
  saving_step_ = progress.step;
  blocked_seconds_ = SteadySeconds() - start;
  return async ? complete : Finish();
}

absl::StatusOr<std::optional<CheckpointRecord>> RunCheckpoints::Finish() {
  std::optional<CheckpointRecord> record;
  if (!saving_step_.has_value()) return record;
  const std::string attempted =
      absl::StrCat("saving the checkpoint of step ", *saving_step_);
  saving_step_.reset();
  absl::Status mine;
  if (writing_.valid()) {
    absl::StatusOr<CheckpointRecord> written = writing_.get();
    mine = written.status();
    if (written.ok()) record = *std::move(written);
  }
  RETURN_IF_ERROR(AgreeOnSuccess(attempted, mine, worker_));
  if (parts_ > 1) {
    // Older checkpoints are needed until all parts of this one exist.
    RETURN_IF_ERROR(AgreeOnSuccess(
        attempted, worker_.is_first() ? store_->Prune() : absl::OkStatus(),
        worker_));
  }
  if (record.has_value()) {
    record->blocked_seconds =
        config_.checkpoint.async ? blocked_seconds_ : record->seconds;
  }
  return record;
}

// Making the values is collective: all ranks make all of them, even if the rank
// that writes fails.
absl::Status RunCheckpoints::ExportPart(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<TensorSource> tensors,
                   WholeTensors(worker_, model_, sharded_));
  size_t made = 0;
  for (TensorSource& tensor : tensors) {
    tensor.values = [&made, values = std::move(tensor.values)] {
      ++made;
      return values();
    };
  }
  const bool writes = worker_.is_of_first_copy(worker_.env.rank) &&
                      worker_.coordinate("tp") == 0;
  const absl::Status written =
      writes ? WriteSafetensors(path, tensors, {{"format", "pt"}})
             : absl::OkStatus();
  while (made < tensors.size()) tensors[made].values();
  return written;
}

absl::Status RunCheckpoints::Export() {
  const std::string& dir = config_.checkpoint.dir;
  const int part = worker_.coordinate("pp"), parts = worker_.size("pp");
  const std::string path =
      absl::StrCat(dir, "/", SafetensorsShardName(part, parts));
  constexpr char kAttempted[] = "writing the model's weights";
  RETURN_IF_ERROR(AgreeOnSuccess(
      kAttempted,
      SavesState(worker_, sharded_) ? ExportPart(path) : absl::OkStatus(),
      worker_));
  absl::Status indexed;
  if (worker_.is_first()) {
    if (parts > 1) indexed = SaveSafetensorsIndex(dir, parts);
    if (indexed.ok()) RemoveOtherExports(dir, parts);
  }
  return AgreeOnSuccess(kAttempted, indexed, worker_);
}

}  // namespace rankwise
