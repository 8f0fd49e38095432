#include "trainers/resume/run_checkpoints.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/comm/gather.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/huggingface/config_file.h"
#include "trainers/huggingface/model_config.h"
#include "trainers/huggingface/tensor_names.h"
#include "trainers/resume/agreement.h"
#include "trainers/resume/resume_check.h"
#include "trainers/resume/run_state.h"
#include "trainers/resume/shared_headers.h"

namespace rankwise {
namespace {

constexpr char kConfigKey[] = "config";
constexpr char kEngineKey[] = "engine";
// The model that is exported in Hugging Face's layout.
constexpr char kLlama[] = "llama";
// Prefix of the checkpoint entries that hold each data-parallel rank's buffers.
constexpr char kBuffers[] = "rank_buffers.";

// A contiguous copy in host memory.
torch::Tensor Copy(const torch::Tensor& values) {
  return at::empty(values.sizes(), values.options().device(c10::kCPU))
      .copy_(values.detach());
}

// Values exchanged instead of a checkpoint's step.
constexpr int64_t kNoCheckpoint = -1;
constexpr int64_t kNotLoaded = -2;

absl::StatusOr<FolderLock> OpenFolder(const std::string& dir,
                                      const Worker& worker) {
  RETURN_IF_ERROR(MakeCheckpointFolder(dir));
  return FolderLock::Take(dir, worker.trainer);
}

// Whether each rank along dp has its own copy of the same buffers.
bool HasOwnBuffers(const Worker& worker, const Model& model) {
  return worker.dp_size() > 1 && worker.size("pp") == 1 &&
         !model.named_buffers().is_empty();
}

// Name of a data-parallel rank's buffer in a checkpoint.
std::string BufferName(int rank, const std::string& name) {
  return absl::StrCat(kBuffers, rank, ".", name);
}

// Name of the first parameter or buffer with a value that is not finite, or "".
// Waits once for the device.
std::string FirstNonFinite(const std::vector<HeldBlock>& blocks) {
  const at::NoGradGuard no_grad;
  std::vector<torch::Tensor> largest;
  std::vector<std::string> names;
  for (const HeldBlock& held : blocks) {
    const torch::Tensor& values = held.block.values;
    if (!absl::StartsWith(held.block.name, kModelPrefix) ||
        !at::isFloatingType(values.scalar_type()) || values.numel() == 0) {
      continue;
    }
    const torch::Tensor norm = at::linalg_vector_norm(
        values.detach(), std::numeric_limits<double>::infinity());
    largest.push_back(
        norm.to(largest.empty() ? norm.device() : largest.front().device(),
                at::kFloat));
    names.push_back(held.block.name.substr(sizeof(kModelPrefix) - 1));
  }
  if (largest.empty()) return "";
  const torch::Tensor finite = at::stack(largest).isfinite().cpu();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!finite.const_data_ptr<bool>()[i]) return names[i];
  }
  return "";
}

// Checks like CheckConfig.
absl::StatusOr<int64_t> CheckSaved(const Checkpoint& saved,
                                   const TrainConfig& config,
                                   int64_t total_steps, const Worker& worker) {
  const auto saved_config = saved.metadata.find(kConfigKey);
  return CheckConfig(
      saved_config == saved.metadata.end() ? "" : saved_config->second,
      LossDecidingConfig(config, worker, total_steps), config, worker);
}

// Converts tensors of fp32 to `type` as they are written.
absl::Status ConvertFloats(c10::ScalarType type,
                           std::vector<TensorSource>& tensors) {
  for (TensorSource& tensor : tensors) {
    if (tensor.entry.dtype != c10::ScalarType::Float) continue;
    tensor.entry.dtype = type;
    tensor.values = [type, values = std::move(tensor.values)] {
      return values().to(type);
    };
  }
  return SetOffsets(tensors);
}

// Writes config.json, without which transformers cannot load the export.
absl::Status DescribeExport(const TrainConfig& config) {
  if (config.model.name != kLlama) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HuggingFaceConfig dimensions,
                   HuggingFaceConfigOf(config.model));
  return WriteHuggingFaceConfig(
      absl::StrCat(config.checkpoint.dir, "/config.json"), dimensions,
      config.checkpoint.export_type);
}

absl::Status SeeDifferentCheckpoints(const Worker& worker,
                                     const std::vector<int64_t>& found) {
  const int64_t mine = found[static_cast<size_t>(worker.env.rank)];
  const auto other =
      absl::c_find_if(found, [&](int64_t theirs) { return theirs != mine; });
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: rank ", worker.env.rank, " and rank ", other - found.begin(),
      " see different checkpoints (steps ", mine, " and ", *other,
      "; -1: none found, -2: not loadable); --checkpoint_dir must be a folder "
      "that all machines share"));
}

}  // namespace

absl::Status CheckResume(const TrainConfig& config, int64_t total_steps,
                         const Worker& worker) {
  std::vector<std::string> warnings;  // repeated by the rank that resumes
  const absl::Status checked =
      CheckpointStore(config.checkpoint.dir, config.checkpoint.keep)
          .LoadLatest(&warnings,
                      [&](CheckpointReader& reader) {
                        return CheckSaved(reader.saved(), config, total_steps,
                                          worker)
                            .status();
                      })
          .status();
  return absl::IsFailedPrecondition(checked) ? checked : absl::OkStatus();
}

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
                     GatherToHost(at::tensor({mine}, at::kLong), worker_.comm));
    for (size_t i = 0; i < all.size(); ++i)
      saves[i] = all[i].item<int64_t>() != 0;
  }
  const auto me = saves.begin() + worker_.env.rank;
  parts_ = static_cast<int>(absl::c_count(saves, true));
  const auto part = static_cast<int>(std::count(saves.begin(), me, true));
  const std::string& dir = config_.checkpoint.dir;
  store_.emplace(dir, config_.checkpoint.keep, *me ? part : 0, parts_);
  absl::Status opened;
  if (worker_.is_first()) {
    absl::StatusOr<FolderLock> lock = OpenFolder(dir, worker_);
    opened = lock.status();
    if (lock.ok()) lock_.emplace(*std::move(lock));
  }
  return AgreeOnSuccess("opening the checkpoint folder", opened, worker_);
}

absl::StatusOr<Checkpoint> RunCheckpoints::Capture(
    const Progress& progress) const {
  Checkpoint checkpoint;
  for (HeldBlock& held : HeldBlocks(worker_, model_, optimizer_, sharded_)) {
    if (!held.saved) continue;
    if (config_.checkpoint.async) held.block.values = Copy(held.block.values);
    checkpoint.tensors.push_back(std::move(held.block));
  }
  RETURN_IF_ERROR(AddBuffers(checkpoint));
  RETURN_IF_ERROR(AddProgress(progress, worker_, checkpoint));
  checkpoint.metadata[kConfigKey] =
      LossDecidingConfig(config_, worker_, total_steps_);
  if (engine_.save != nullptr) checkpoint.metadata[kEngineKey] = engine_.save();
  return checkpoint;
}

// Adds every data-parallel rank's buffers to the first rank's part.
absl::Status RunCheckpoints::AddBuffers(Checkpoint& checkpoint) const {
  if (!HasOwnBuffers(worker_, model_)) return absl::OkStatus();
  for (const auto& buffer : model_.named_buffers()) {
    ASSIGN_OR_RETURN(const auto all,
                     GatherToHost(buffer.value(), worker_.comm));
    if (!worker_.is_first()) continue;
    int share = 0;
    for (const int rank : worker_.Line("dp")) {
      checkpoint.tensors.push_back(
          {BufferName(share++, buffer.key()), all[static_cast<size_t>(rank)]});
    }
  }
  return absl::OkStatus();
}

absl::Status RunCheckpoints::RestoreBuffers(CheckpointReader& reader) const {
  const auto buffers = model_.named_buffers();
  if (buffers.is_empty()) return absl::OkStatus();
  const std::string& first = buffers[0].key();
  int saved = 0;
  while (reader.Has(BufferName(saved, first))) ++saved;
  if (saved == worker_.dp_size()) {
    for (const auto& buffer : buffers) {
      RETURN_IF_ERROR(reader.Read(
          {BufferName(worker_.dp_rank(), buffer.key()), buffer.value()}));
    }
  } else if (engine_.own_buffers && (saved > 0 || worker_.dp_size() > 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--broadcast_buffers=false: the checkpoint has the buffers of ",
        Counted(std::max(saved, 1), "data-parallel rank"), ", this run has ",
        worker_.dp_size(),
        "; resume with as many, or with --broadcast_buffers, which gives all "
        "ranks those of rank 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Progress> RunCheckpoints::Restore(CheckpointReader& reader) {
  const Checkpoint& saved = reader.saved();
  ASSIGN_OR_RETURN(const int64_t accumulate,
                   CheckSaved(saved, config_, total_steps_, worker_));
  const std::vector<HeldBlock> blocks =
      HeldBlocks(worker_, model_, optimizer_, sharded_);
  for (const HeldBlock& held : blocks) {
    RETURN_IF_ERROR(reader.Read(held.block));
  }
  RETURN_IF_ERROR(RestoreBuffers(reader));
  if (config_.on_nan == OnNan::kStop) {
    const std::string name = FirstNonFinite(blocks);
    if (!name.empty()) {
      return absl::DataLossError(absl::StrCat(
          "the checkpoint of step ", saved.step, ": ", name,
          " has values that are not finite (--on_nan=continue loads them)"));
    }
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
    ASSIGN_OR_RETURN(
        const CheckpointHeaders headers,
        ShareHeaders(worker_.is_first() ? store_->ReadLatestHeaders(last_step)
                                        : CheckpointHeaders(),
                     worker_));
    absl::StatusOr<std::optional<int64_t>> loaded = std::nullopt;
    if (!interrupted)
      loaded = store_->LoadLatest(&warnings, restore, last_step, headers);
    // A rank that cannot load must not leave the others waiting: every rank
    // receives each rank's result.
    const int64_t mine =
        !loaded.ok() ? kNotLoaded : loaded->value_or(kNoCheckpoint);
    ASSIGN_OR_RETURN(auto gathered,
                     GatherToHost(at::tensor({mine}, at::kLong), worker_.comm));
    std::vector<int64_t> found;
    for (const torch::Tensor& step : gathered)
      found.push_back(step.item<int64_t>());
    const auto [least, most] = absl::c_minmax_element(found);
    if (worker_.is_first() || mine < *most) {
      for (const std::string& warning : warnings)
        std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    RETURN_IF_ERROR(loaded.status());
    if (*least == *most) {
      if (progress.has_value()) complete_step_ = progress->step;
      return progress;
    }
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
    CheckpointRecord record;
    record.rank = worker_.env.rank;
    record.step = checkpoint.step;
    record.epoch = checkpoint.epoch;
    record.path = store_->Path(checkpoint.step);
    record.bytes =
        static_cast<int64_t>(std::filesystem::file_size(record.path));
    record.seconds = SteadySeconds() - start_seconds;
    return record;
  } catch (const std::exception& error) {  // the ranks must agree on success
    return absl::InternalError(PlainMessage(error));
  }
}

absl::Status RunCheckpoints::CheckFinite(int64_t step) const {
  const std::string name =
      FirstNonFinite(HeldBlocks(worker_, model_, optimizer_, sharded_));
  const absl::Status mine = name.empty()
                                ? absl::OkStatus()
                                : absl::OutOfRangeError(absl::StrCat(
                                      name, " has values that are not finite"));
  const std::string attempted =
      absl::StrCat("the check of the parameters after step ", step);
  const bool alone = worker_.comm == nullptr || worker_.comm->world_size() == 1;
  if (!alone || mine.ok()) return AgreeOnSuccess(attempted, mine, worker_);
  return absl::OutOfRangeError(absl::StrCat(
      attempted, " failed on rank ", worker_.env.rank, ": ", mine.message()));
}

// Older checkpoints are needed until all parts of the new one exist.
absl::Status RunCheckpoints::Prune() {
  if (parts_ == 1) return absl::OkStatus();  // done by the save
  absl::Status pruned = worker_.is_first() ? store_->Prune() : absl::OkStatus();
  if (absl::IsFailedPrecondition(pruned)) {
    std::fprintf(stderr, "warning: %s\n",
                 std::string(pruned.message()).c_str());
    pruned = absl::OkStatus();
  }
  return AgreeOnSuccess("deleting older checkpoints", pruned, worker_);
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
  const int64_t step = *std::exchange(saving_step_, std::nullopt);
  const std::string attempted =
      absl::StrCat("saving the checkpoint of step ", step);
  absl::Status mine;
  if (writing_.valid()) {
    absl::StatusOr<CheckpointRecord> written = writing_.get();
    mine = written.status();
    if (written.ok()) record = *std::move(written);
  }
  RETURN_IF_ERROR(AgreeOnSuccess(attempted, mine, worker_));
  RETURN_IF_ERROR(Prune());
  complete_step_ = step;
  if (record.has_value()) {
    record->blocked_seconds =
        config_.checkpoint.async ? blocked_seconds_ : record->seconds;
  }
  return record;
}

absl::Status RunCheckpoints::WriteExport(
    const std::string& path, std::vector<TensorSource> tensors) const {
  const c10::ScalarType type = config_.checkpoint.export_type;
  if (config_.model.name == kLlama) {
    ASSIGN_OR_RETURN(const HuggingFaceConfig dimensions,
                     HuggingFaceConfigOf(config_.model));
    ASSIGN_OR_RETURN(tensors,
                     ToHuggingFace(std::move(tensors), dimensions, type));
  } else {
    RETURN_IF_ERROR(ConvertFloats(type, tensors));
  }
  return WriteSafetensors(path, tensors, {{"format", "pt"}});
}

// Gathering the values is collective: all ranks gather all of them, even if the
// rank that writes fails.
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
      writes ? WriteExport(path, tensors) : absl::OkStatus();
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
    if (indexed.ok()) indexed = DescribeExport(config_);
    if (indexed.ok()) RemoveOtherExports(dir, parts);
  }
  return AgreeOnSuccess(kAttempted, indexed, worker_);
}

}  // namespace rankwise
