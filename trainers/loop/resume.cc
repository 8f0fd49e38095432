#include "trainers/loop/resume.h"

#include <ATen/CPUGeneratorImpl.h>
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
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "samplers/datasets/split_mix.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checksum.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/loop/agreement.h"
#include "trainers/loop/resume_check.h"
#include "trainers/loop/run_state.h"

namespace rankwise {
namespace {

constexpr char kConfigKey[] = "config";
// The same in the parts of one save, and in no other's.
constexpr char kSaveKey[] = "save";

// Positions in a rank's sums.
enum Sum : int64_t { kLoss, kExamples, kSeconds, kUnixSeconds };

// What older checkpoints have in place of it counts from the machine's start.
constexpr double kEarliestUnixSeconds = 1e9;

double UnixSeconds() {
  return 1e-6 * static_cast<double>(absl::ToUnixMicros(absl::Now()));
}

// Prefixes of what a checkpoint holds of every data-parallel rank.
constexpr char kRng[] = "rng.";
constexpr char kSums[] = "epoch_sums.";

at::Generator DeviceGenerator(const Worker& worker) {
  if (worker.device.is_cpu()) return at::detail::getDefaultCPUGenerator();
  return at::globalContext().defaultGenerator(worker.device);
}

torch::Tensor GeneratorState(const Worker& worker) {
  at::Generator generator = DeviceGenerator(worker);
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

// Every rank's `tensor`; just this one where there is no group. Runs on the
// group's device.
absl::StatusOr<std::vector<torch::Tensor>> Gather(const Worker& worker,
                                                  const torch::Tensor& tensor) {
  if (worker.comm == nullptr) return std::vector<torch::Tensor>{tensor};
  return worker.comm->AllGather(tensor.to(worker.device));
}

// Every data-parallel rank's `mine`, of those along dp through the first rank:
// the other ranks of a copy of the model saw the same data.
absl::StatusOr<std::vector<torch::Tensor>> GatherShares(
    const Worker& worker, const torch::Tensor& mine) {
  ASSIGN_OR_RETURN(std::vector<torch::Tensor> all, Gather(worker, mine));
  std::vector<torch::Tensor> shares;
  for (const int rank : worker.layout.Line("dp", 0))
    shares.push_back(all[static_cast<size_t>(rank)].cpu());
  return shares;
}

void AddShares(const std::vector<torch::Tensor>& shares, const char* prefix,
               std::vector<TensorBlock>& tensors) {
  for (size_t i = 0; i < shares.size(); ++i)
    tensors.push_back({absl::StrCat(prefix, i), shares[i]});
}

// Those that AddShares added.
absl::StatusOr<std::vector<torch::Tensor>> ReadShares(CheckpointReader& reader,
                                                      const char* prefix) {
  std::vector<torch::Tensor> shares;
  while (reader.Has(absl::StrCat(prefix, shares.size()))) {
    ASSIGN_OR_RETURN(torch::Tensor share,
                     reader.Read(absl::StrCat(prefix, shares.size())));
    shares.push_back(std::move(share));
  }
  if (!shares.empty()) return shares;
  return absl::DataLossError(
      "--resume: the checkpoint has no state of data-parallel rank 0");
}

// In the host's memory, contiguous.
torch::Tensor Copy(const torch::Tensor& values) {
  return at::empty(values.sizes(), values.options().device(c10::kCPU))
      .copy_(values.detach());
}

// Another save's is another: the sums tell when they were.
std::string SaveId(const std::vector<torch::Tensor>& sums) {
  Checksum checksum;
  for (const torch::Tensor& each : sums)
    checksum.Add(each.const_data_ptr(), each.nbytes());
  return absl::StrFormat("%016x", checksum.value());
}

absl::Status RestoreGenerator(CheckpointReader& reader, const Worker& worker,
                              uint64_t seed) {
  ASSIGN_OR_RETURN(const auto states, ReadShares(reader, kRng));
  at::Generator generator = DeviceGenerator(worker);
  std::lock_guard<std::mutex> lock(generator.mutex());
  const auto rank = static_cast<size_t>(worker.dp_rank());
  const bool known = rank < states.size();
  // A CPU's state is a few thousand bytes, a GPU's its seed and offset.
  if (known && states[rank].sizes() == generator.get_state().sizes()) {
    generator.set_state(states[rank]);
    return absl::OkStatus();
  }
  if (known && worker.is_first()) {
    std::fprintf(stderr,
                 "warning: --resume: the checkpoint's random state comes from "
                 "another kind of device than %s and cannot be restored; "
                 "generators are seeded from --seed and the step, so random "
                 "numbers differ from those of an uninterrupted run\n",
                 worker.device.str().c_str());
  }
  const uint64_t of_step =
      MixIn(seed, static_cast<uint64_t>(reader.saved().step));
  generator.set_current_seed(MixIn(of_step, rank));
  return absl::OkStatus();
}

// Seconds are of the wall: those of ranks that are gone are not added, and a
// new rank has been there as long as the first.
absl::Status RestoreSums(CheckpointReader& reader, const Worker& worker,
                         Progress& progress) {
  ASSIGN_OR_RETURN(const auto sums, ReadShares(reader, kSums));
  const auto ranks = static_cast<size_t>(worker.dp_size());
  const auto rank = static_cast<size_t>(worker.dp_rank());
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].numel() < 3) {
      return absl::DataLossError(
          absl::StrCat("--resume: the checkpoint lacks sums of data-parallel "
                       "rank ",
                       i));
    }
    const double* values = sums[i].const_data_ptr<double>();
    if (i == 0 || i == rank) progress.epoch_seconds = values[kSeconds];
    if (i == 0 && sums[i].numel() > kUnixSeconds &&
        values[kUnixSeconds] > kEarliestUnixSeconds) {
      progress.saved_unix_seconds = values[kUnixSeconds];
    }
    if (i != rank && (rank > 0 || i < ranks)) continue;
    progress.epoch_loss += values[kLoss];
    progress.epoch_examples += static_cast<int64_t>(values[kExamples]);
  }
  return absl::OkStatus();
}

// In place of a step that a rank has found.
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
                               Optimizer& optimizer, ShardedState sharded)
    : config_(config),
      total_steps_(total_steps),
      worker_(worker),
      model_(model),
      optimizer_(optimizer),
      sharded_(std::move(sharded)) {}

absl::Status RunCheckpoints::Open() {
  const auto ranks = static_cast<size_t>(worker_.env.world_size);
  std::vector<bool> saves(ranks);
  for (size_t i = 0; i < ranks; ++i)
    saves[i] = worker_.is_of_first_copy(static_cast<int>(i));
  if (!sharded_.shards.empty()) {
    const int64_t mine = SavesState(worker_, sharded_) ? 1 : 0;
    ASSIGN_OR_RETURN(const auto all,
                     Gather(worker_, at::tensor({mine}, at::kLong)));
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
  checkpoint.step = progress.step;
  checkpoint.epoch = progress.epoch;
  checkpoint.position = progress.position;
  for (HeldBlock& held : HeldBlocks(worker_, model_, optimizer_, sharded_)) {
    if (!held.saved) continue;
    if (config_.checkpoint.async) held.block.values = Copy(held.block.values);
    checkpoint.tensors.push_back(std::move(held.block));
  }
  ASSIGN_OR_RETURN(const auto generators,
                   GatherShares(worker_, GeneratorState(worker_)));
  const torch::Tensor mine = at::tensor(
      {progress.epoch_loss, static_cast<double>(progress.epoch_examples),
       progress.epoch_seconds, UnixSeconds()},
      at::kDouble);
  ASSIGN_OR_RETURN(const auto sums, GatherShares(worker_, mine));
  if (worker_.is_first()) {
    AddShares(generators, kRng, checkpoint.tensors);
    AddShares(sums, kSums, checkpoint.tensors);
  }
  checkpoint.metadata = {
      {kConfigKey, LossDecidingConfig(config_, worker_, total_steps_)},
      {kSaveKey, SaveId(sums)}};
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
  RETURN_IF_ERROR(RestoreGenerator(reader, worker_, config_.seed));
  // As many steps of the epoch in this run's micro-batches.
  const int64_t steps = (saved.position + accumulate - 1) / accumulate;
  Progress progress{.step = saved.step,
                    .epoch = saved.epoch,
                    .position = steps * config_.accumulate};
  RETURN_IF_ERROR(RestoreSums(reader, worker_, progress));
  return progress;
}

absl::StatusOr<std::optional<Progress>> RunCheckpoints::Resume() {
  int64_t last_step = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> first_found;  // by rank
  for (;;) {
    std::vector<std::string> warnings;
    std::optional<Progress> progress;
    const auto loaded = store_->LoadLatest(
        &warnings,
        [&](CheckpointReader& reader) -> absl::Status {
          ASSIGN_OR_RETURN(progress, Restore(reader));
          return absl::OkStatus();
        },
        last_step);
    // A rank that cannot load must not leave the others waiting: all learn what
    // each found.
    const int64_t mine =
        !loaded.ok() ? kNotLoaded : loaded->value_or(kNoCheckpoint);
    ASSIGN_OR_RETURN(auto gathered,
                     Gather(worker_, at::tensor({mine}, at::kLong)));
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
    // A shard that only some ranks read is damaged there: all take the step
    // that those could load.
    last_step = *least;
  }
}

absl::StatusOr<CheckpointRecord> RunCheckpoints::Write(
    const Checkpoint& checkpoint, double start_seconds) {
  try {
    RETURN_IF_ERROR(store_->Save(checkpoint));
  } catch (const std::exception& error) {  // the writing thread has no other
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
    // Older checkpoints are needed until all parts of this one are there.
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

// The others make the values with the rank that writes, also when it cannot.
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
