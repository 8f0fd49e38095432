#include "trainers/loop/resume.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfigKey[] = "config";
// Settings that several flags decide.
constexpr char kDataParallelRanks[] = "data-parallel ranks";
constexpr char kCosineSteps[] = "steps of the cosine";

// Positions in a rank's sums.
enum Sum : int64_t { kLoss, kExamples, kSeconds };

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

// The tensors of the ranks along dp through this one, in the checkpoint of the
// state's first part: the other ranks of a copy of the model saw the same data.
absl::Status AddPerShare(const Worker& worker, const torch::Tensor& mine,
                         const char* prefix, NamedTensors& tensors) {
  ASSIGN_OR_RETURN(std::vector<torch::Tensor> all, Gather(worker, mine));
  if (worker.state_part() != 0) return absl::OkStatus();
  const std::vector<int> line = worker.Line("dp");
  for (int i = 0; i < worker.dp_size(); ++i) {
    const auto rank = static_cast<size_t>(line[static_cast<size_t>(i)]);
    tensors.emplace_back(absl::StrCat(prefix, i), all[rank].cpu());
  }
  return absl::OkStatus();
}

// A checkpoint holds a tied weight once, under its owner's name: for a copy
// "head.weight", or its optimizer's "exp_avg.head.weight", the owner's.
std::string OwnersName(const Model& model, const std::string& name) {
  for (const TiedWeight& copy : model.copies()) {
    if (name == copy.copy_name ||
        absl::EndsWith(name, absl::StrCat(".", copy.copy_name))) {
      return absl::StrCat(name.substr(0, name.size() - copy.copy_name.size()),
                          copy.name);
    }
  }
  return name;
}

NamedTensors ModelTensors(const Model& model) {
  NamedTensors tensors;
  for (const auto& entry : model.named_parameters())
    tensors.emplace_back(entry.key(), entry.value().detach());
  for (const auto& entry : model.named_buffers())
    tensors.emplace_back(entry.key(), entry.value());
  return tensors;
}

// Without copies of weights that another rank owns.
NamedTensors Owned(const Model& model, NamedTensors tensors) {
  std::erase_if(tensors, [&](const auto& entry) {
    return OwnersName(model, entry.first) != entry.first;
  });
  return tensors;
}

// How the tensor called `name` is divided along tp: a parameter, or what the
// optimizer keeps of it ("model.fc1.weight", "optimizer.exp_avg.fc1.weight").
// Null: every rank has the whole.
const Division* DivisionOf(const Model& model, const std::string& name,
                           const torch::Tensor& tensor) {
  if (tensor.dim() == 0) return nullptr;
  for (const auto& [parameter, division] : model.divisions()) {
    if (name == parameter || absl::EndsWith(name, absl::StrCat(".", parameter)))
      return &division;
  }
  return nullptr;
}

// `tensors` with whole ones in place of parts. Collective along tp.
NamedTensors Whole(const Model& model, NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) {
    const Division* division = DivisionOf(model, name, tensor);
    if (division != nullptr)
      tensor = WholeOf(tensor, *division, model.parallel().tensor);
  }
  return tensors;
}

// What is trained, named as in checkpoints but for copies of tied weights.
NamedTensors TrainedTensors(const Model& model, const Optimizer& optimizer) {
  NamedTensors tensors;
  for (auto& [name, tensor] : ModelTensors(model))
    tensors.emplace_back(absl::StrCat("model.", name), tensor);
  for (auto& [name, tensor] : optimizer.State())
    tensors.emplace_back(absl::StrCat("optimizer.", name), tensor);
  return tensors;
}

bool HasStages(const Worker& worker) {
  return worker.trainer == "pipeline" || worker.trainer == "hybrid";
}

// A setting as the user gave it: "--lr=0.1", "--model=gpt".
std::string AsTyped(const std::string& key, const Json& value,
                    const Worker& worker) {
  const std::string text =
      value.is_string() ? value.get<std::string>() : value.dump();
  if (key == kCosineSteps || key == kDataParallelRanks)
    return absl::StrCat(key, "=", text);
  const bool in_stages = key == "accumulate" && HasStages(worker);
  return absl::StrCat("--", in_stages ? "microbatches" : key, "=", text);
}

// Behind a setting that is no flag: those that make it.
const char* FlagsBehind(const std::string& key, const Worker& worker) {
  if (key == kCosineSteps) return " (--epochs, --max_steps)";
  if (key != kDataParallelRanks) return "";
  return HasStages(worker) ? " (--dp)" : " (--nproc)";
}

absl::Status CheckConfig(const std::string& saved_text,
                         const std::string& now_text, const Worker& worker) {
  const Json saved =
      Json::parse(saved_text, nullptr, /*allow_exceptions=*/false);
  if (saved.is_discarded()) {
    return absl::DataLossError(
        "--resume: the checkpoint's configuration is not JSON; remove the "
        "checkpoint");
  }
  const Json now = Json::parse(now_text);
  for (const auto& [key, value] : now.items()) {
    const Json before = saved.contains(key) ? saved[key] : Json("absent");
    if (before != value) {
      return absl::FailedPreconditionError(
          absl::StrCat("--resume: the checkpoint was made with ",
                       AsTyped(key, before, worker), ", this run has ",
                       AsTyped(key, value, worker), FlagsBehind(key, worker),
                       "; repeat the flags of the stopped run, or give another "
                       "--checkpoint_dir"));
    }
  }
  return absl::OkStatus();
}

using TensorMap = std::map<std::string, torch::Tensor>;

// `part`: of the saved tensor; null for all of it.
absl::Status CopyInto(
    const TensorMap& saved, const std::string& name, torch::Tensor target,
    const std::function<torch::Tensor(const torch::Tensor&)>& part) {
  const auto found = saved.find(name);
  if (found == saved.end()) {
    return absl::DataLossError(
        absl::StrCat("--resume: the checkpoint has no tensor ", name));
  }
  const torch::Tensor source =
      part == nullptr ? found->second : part(found->second);
  if (source.sizes() != target.sizes()) {
    return absl::DataLossError(absl::StrCat(
        "--resume: the checkpoint's tensor ", name, " has another shape"));
  }
  at::NoGradGuard no_grad;
  target.copy_(source);
  return absl::OkStatus();
}

absl::Status RestoreShare(const TensorMap& saved, const Worker& worker,
                          Progress& progress) {
  const auto rng = saved.find(absl::StrCat(kRng, worker.dp_rank()));
  const auto sums = saved.find(absl::StrCat(kSums, worker.dp_rank()));
  if (rng == saved.end() || sums == saved.end() || sums->second.numel() != 3) {
    return absl::DataLossError(absl::StrCat(
        "--resume: the checkpoint has no state of data-parallel rank ",
        worker.dp_rank()));
  }
  at::Generator generator = DeviceGenerator(worker);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(rng->second);
  const double* values = sums->second.data_ptr<double>();
  progress.epoch_loss = values[kLoss];
  progress.epoch_examples = static_cast<int64_t>(values[kExamples]);
  progress.epoch_seconds = values[kSeconds];
  return absl::OkStatus();
}

// In place of a step that a rank has found.
constexpr int64_t kNoCheckpoint = -1;
constexpr int64_t kNotLoaded = -2;

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
      sharded_(std::move(sharded)),
      store_(config.checkpoint.dir, config.checkpoint.keep, worker.state_part(),
             worker.state_parts()) {}

absl::Status RunCheckpoints::MakeFolder() const {
  if (!worker_.is_first()) return absl::OkStatus();
  const std::string& dir = config_.checkpoint.dir;
  std::error_code error;
  std::filesystem::create_directory(dir, error);
  if (!error && access(dir.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--checkpoint_dir=", dir, ": cannot be written to: ", error.message()));
}

std::string RunCheckpoints::LossDecidingConfig() const {
  Json settings = config_.flags.losses;
  settings[kDataParallelRanks] = worker_.dp_size();
  // The cosine's shape depends on where it ends; other schedules may be
  // prolonged.
  settings[kCosineSteps] =
      config_.optimizer.lr_schedule == "cosine" ? total_steps_ : 0;
  return settings.dump(-1, ' ', false,
                       Json::error_handler_t::replace);  // paths: any bytes
}

absl::StatusOr<Checkpoint> RunCheckpoints::Capture(
    const Progress& progress) const {
  Checkpoint checkpoint;
  checkpoint.step = progress.step;
  checkpoint.epoch = progress.epoch;
  checkpoint.position = progress.position;
  checkpoint.metadata[kConfigKey] = LossDecidingConfig();
  // Replicas have the same; only the first one's ranks put theirs together.
  NamedTensors trained = Owned(model_, TrainedTensors(model_, optimizer_));
  const bool first_replica =
      worker_.dp_rank() == 0 && worker_.coordinate("cp") == 0;
  checkpoint.tensors =
      first_replica ? Whole(model_, std::move(trained)) : std::move(trained);
  RETURN_IF_ERROR(
      AddPerShare(worker_, GeneratorState(worker_), kRng, checkpoint.tensors));
  const torch::Tensor sums = at::tensor(
      {progress.epoch_loss, static_cast<double>(progress.epoch_examples),
       progress.epoch_seconds},
      at::kDouble);
  RETURN_IF_ERROR(AddPerShare(worker_, sums, kSums, checkpoint.tensors));
  return checkpoint;
}

absl::StatusOr<Progress> RunCheckpoints::Restore(const Checkpoint& checkpoint) {
  const auto saved_config = checkpoint.metadata.find(kConfigKey);
  const std::string saved_text =
      saved_config == checkpoint.metadata.end() ? "" : saved_config->second;
  RETURN_IF_ERROR(CheckConfig(saved_text, LossDecidingConfig(), worker_));

  const TensorMap saved(checkpoint.tensors.begin(), checkpoint.tensors.end());
  for (auto& [name, tensor] : TrainedTensors(model_, optimizer_)) {
    std::function<torch::Tensor(const torch::Tensor&)> part;
    const Division* division = DivisionOf(model_, name, tensor);
    if (division != nullptr) {
      part = [&, division](const torch::Tensor& whole) {
        return PartOf(whole, *division, model_.parallel().tensor);
      };
    }
    RETURN_IF_ERROR(CopyInto(saved, OwnersName(model_, name), tensor, part));
  }
  Progress progress{.step = checkpoint.step,
                    .epoch = checkpoint.epoch,
                    .position = checkpoint.position};
  RETURN_IF_ERROR(RestoreShare(saved, worker_, progress));
  return progress;
}

absl::StatusOr<std::optional<Checkpoint>> RunCheckpoints::Load() {
  CheckpointRequest request;
  for (const auto& [name, tensor] : TrainedTensors(model_, optimizer_))
    request.tensors.insert(OwnersName(model_, name));
  std::vector<int64_t> first_found;  // by rank
  for (;;) {
    std::vector<std::string> warnings;
    auto loaded = store_.LoadLatest(&warnings, request);
    // A rank that cannot load must not leave the others waiting: all learn what
    // each found.
    const int64_t mine = !loaded.ok()          ? kNotLoaded
                         : loaded->has_value() ? (*loaded)->step
                                               : kNoCheckpoint;
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
    if (!loaded.ok() || *least == *most) return loaded;
    if (first_found.empty()) first_found = found;
    if (*least < 0) return SeeDifferentCheckpoints(worker_, first_found);
    // A shard that only some ranks read is damaged there: all take the step
    // that those could load.
    request.last_step = *least;
  }
}

absl::StatusOr<std::optional<Progress>> RunCheckpoints::Resume() {
  ASSIGN_OR_RETURN(std::optional<Checkpoint> loaded, Load());
  if (!loaded.has_value()) return std::nullopt;
  return Restore(*loaded);
}

absl::StatusOr<std::optional<CheckpointRecord>> RunCheckpoints::Save(
    const Progress& progress) {
  const double start = SteadySeconds();
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Capture(progress));
  if (worker_.writes_state()) {
    RETURN_IF_ERROR(store_.Save(checkpoint));
  }
  if (worker_.state_parts() > 1) {
    // Older checkpoints are needed until all parts of this one are there.
    RETURN_IF_ERROR(worker_.comm->Barrier());
    if (worker_.is_first()) {
      RETURN_IF_ERROR(store_.Prune());
    }
  }
  if (!worker_.writes_state()) return std::nullopt;
  CheckpointRecord record;
  record.rank = worker_.env.rank;
  record.step = progress.step;
  record.epoch = progress.epoch;
  record.path = store_.Path(progress.step);
  record.bytes = static_cast<int64_t>(std::filesystem::file_size(record.path));
  record.seconds = SteadySeconds() - start;
  return record;
}

absl::Status RunCheckpoints::Export() {
  const std::string& dir = config_.checkpoint.dir;
  const int part = worker_.state_part(), parts = worker_.state_parts();
  if (worker_.dp_rank() == 0 && worker_.coordinate("cp") == 0) {
    const NamedTensors tensors =
        Whole(model_, Owned(model_, ModelTensors(model_)));
    if (worker_.writes_state()) {
      RETURN_IF_ERROR(SaveSafetensors(
          absl::StrCat(dir, "/", SafetensorsShardName(part, parts)), tensors,
          {{"format", "pt"}}));
    }
  }
  if (parts > 1) {
    RETURN_IF_ERROR(worker_.comm->Barrier());
  }
  if (!worker_.is_first()) return absl::OkStatus();
  if (parts > 1) {
    RETURN_IF_ERROR(SaveSafetensorsIndex(dir, parts));
  }
  RemoveOtherExports(dir, parts);
  return absl::OkStatus();
}

}  // namespace rankwise
