// The part of TrainingRun that deals with checkpoints.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/checkpoint/safetensors_index.h"
#include "trainers/training_run.h"

namespace rankwise {

absl::Status TrainingRun::RestoreIfAsked() {
  if (config_.checkpoint.dir.empty()) return absl::OkStatus();
  checkpoints_.emplace(config_.checkpoint.dir, config_.checkpoint.keep,
                       worker_.shard(), worker_.shards);
  if (!config_.checkpoint.resume) return absl::OkStatus();
  absl::StatusOr<std::optional<Checkpoint>> loaded =
      LoadForResume(*checkpoints_, worker_, *model_, *optimizer_);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->has_value()) {
    console_->Say(absl::StrCat("--resume: no checkpoint in ",
                               config_.checkpoint.dir,
                               "; starting from the first step"));
    return absl::OkStatus();
  }
  absl::StatusOr<Progress> restored =
      Restore(**loaded, config_, total_steps_, worker_, *model_, *optimizer_);
  if (!restored.ok()) return restored.status();
  progress_ = *restored;
  console_->Say(absl::StrCat("resumed after step ", progress_.step, " (epoch ",
                             progress_.epoch, ", batch ", progress_.position,
                             ")"));
  if (done()) {
    console_->Say(absl::StrCat(
        "--resume: nothing is left to do: the run ends after step ",
        total_steps_, " (--epochs=", config_.epochs,
        config_.max_steps > 0
            ? absl::StrCat(", --max_steps=", config_.max_steps)
            : "",
        "); to train on, give more"));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::SaveCheckpoint() {
  if (!checkpoints_.has_value()) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  absl::Status flushed = log_->Flush();
  if (!flushed.ok()) return flushed;
  progress_.epoch_loss = log_->epoch_sums().loss;
  progress_.epoch_examples = log_->epoch_sums().examples;
  absl::StatusOr<Checkpoint> checkpoint =
      Capture(config_, total_steps_, worker_, *model_, *optimizer_, progress_);
  if (!checkpoint.ok()) return checkpoint.status();
  if (worker_.replica() == 0) {
    absl::Status saved = checkpoints_->Save(*checkpoint);
    if (!saved.ok()) return saved;
  }
  if (worker_.shards > 1) {
    // Older checkpoints are of use until all shards of this one are there.
    absl::Status whole = worker_.comm->Barrier();
    if (!whole.ok()) return whole;
    if (worker_.is_first()) whole = checkpoints_->Prune();
    if (!whole.ok()) return whole;
  }
  if (writer_ == nullptr || worker_.replica() != 0) return absl::OkStatus();
  CheckpointRecord record;
  record.rank = worker_.env.rank;
  record.step = progress_.step;
  record.epoch = progress_.epoch;
  record.path = checkpoints_->Path(progress_.step);
  record.bytes = static_cast<int64_t>(std::filesystem::file_size(record.path));
  record.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return writer_->Write(Record(record));
}

absl::Status TrainingRun::ExportModel() {
  if (!checkpoints_.has_value()) return absl::OkStatus();
  const std::string& dir = config_.checkpoint.dir;
  if (worker_.replica() == 0) {
    absl::Status saved = SaveSafetensors(
        absl::StrCat(dir, "/",
                     SafetensorsShardName(worker_.shard(), worker_.shards)),
        ModelTensors(*model_), {{"format", "pt"}});
    if (!saved.ok()) return saved;
  }
  if (worker_.shards > 1) {
    absl::Status all = worker_.comm->Barrier();
    if (!all.ok()) return all;
  }
  if (!worker_.is_first()) return absl::OkStatus();
  if (worker_.shards > 1) {
    absl::Status indexed = SaveSafetensorsIndex(dir, worker_.shards);
    if (!indexed.ok()) return indexed;
  }
  RemoveOtherExports(dir, worker_.shards);
  return absl::OkStatus();
}

}  // namespace rankwise
