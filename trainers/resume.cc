#include "trainers/resume.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfigKey[] = "config";
// Settings that several flags decide.
constexpr char kReplicas[] = "data-parallel ranks";
constexpr char kCosineSteps[] = "steps of the cosine";
constexpr char kExchange[] = "gradient exchange";

// Positions in a rank's sums.
enum Sum : int64_t { kLoss, kExamples, kSeconds };

std::string RngName(int replica) { return absl::StrCat("rng.", replica); }
std::string SumsName(int replica) {
  return absl::StrCat("epoch_sums.", replica);
}

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

// Of every copy of the model its first rank's tensor; its other ranks saw the
// same data. Part of the first shard's checkpoint.
absl::Status AddPerReplica(const Worker& worker, const torch::Tensor& mine,
                           std::string (*name)(int replica),
                           NamedTensors* tensors) {
  absl::StatusOr<std::vector<torch::Tensor>> all = Gather(worker, mine);
  if (!all.ok()) return all.status();
  if (worker.shard() != 0) return absl::OkStatus();
  for (int replica = 0; replica < worker.replicas(); ++replica) {
    tensors->emplace_back(
        name(replica),
        (*all)[static_cast<size_t>(replica * worker.shards)].cpu());
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

NamedTensors AllTensors(const Model& model) {
  NamedTensors tensors;
  for (const auto& entry : model.named_parameters())
    tensors.emplace_back(entry.key(), entry.value().detach());
  for (const auto& entry : model.named_buffers())
    tensors.emplace_back(entry.key(), entry.value());
  return tensors;
}

bool IsCopy(const Model& model, const std::string& name) {
  return OwnersName(model, name) != name;
}

// A setting as the user gave it: "--lr=0.1", "--model=gpt".
std::string AsTyped(const std::string& key, const Json& value,
                    const Worker& worker) {
  const std::string text =
      value.is_string() ? value.get<std::string>() : value.dump();
  if (key == kCosineSteps || key == kReplicas || key == kExchange)
    return absl::StrCat(key, "=", text);
  const bool is_pipeline = worker.trainer == "pipeline" && key == "accumulate";
  return absl::StrCat("--", is_pipeline ? "microbatches" : key, "=", text);
}

// Behind a setting that is no flag: those that make it.
const char* FlagsBehind(const std::string& key, const Worker& worker) {
  if (key == kCosineSteps) return " (--epochs, --max_steps)";
  if (key != kReplicas) return "";
  return worker.trainer == "pipeline" ? " (--dp)" : " (--nproc)";
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

absl::Status CopyInto(const TensorMap& saved, const std::string& name,
                      torch::Tensor target) {
  const auto found = saved.find(name);
  if (found == saved.end()) {
    return absl::DataLossError(
        absl::StrCat("--resume: the checkpoint has no tensor ", name));
  }
  if (found->second.sizes() != target.sizes()) {
    return absl::DataLossError(absl::StrCat(
        "--resume: the checkpoint's tensor ", name, " has another shape"));
  }
  at::NoGradGuard no_grad;
  target.copy_(found->second);
  return absl::OkStatus();
}

absl::Status RestoreReplica(const TensorMap& saved, const Worker& worker,
                            Progress* progress) {
  const auto rng = saved.find(RngName(worker.replica()));
  const auto sums = saved.find(SumsName(worker.replica()));
  if (rng == saved.end() || sums == saved.end() || sums->second.numel() != 3) {
    return absl::DataLossError(absl::StrCat(
        "--resume: the checkpoint has no state of data-parallel rank ",
        worker.replica()));
  }
  at::Generator generator = DeviceGenerator(worker);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(rng->second);
  const double* values = sums->second.data_ptr<double>();
  progress->epoch_loss = values[kLoss];
  progress->epoch_examples = static_cast<int64_t>(values[kExamples]);
  progress->epoch_seconds = values[kSeconds];
  return absl::OkStatus();
}

// What Restore will ask a checkpoint for, but for what the first shard has.
std::set<std::string> NeededTensors(const Model& model,
                                    const Optimizer& optimizer) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : AllTensors(model))
    names.insert(absl::StrCat("model.", OwnersName(model, name)));
  for (const auto& [name, tensor] : optimizer.State())
    names.insert(absl::StrCat("optimizer.", OwnersName(model, name)));
  return names;
}

// In place of a step that a rank has found.
constexpr int64_t kNoCheckpoint = -1;
constexpr int64_t kNotLoaded = -2;

absl::Status SeeDifferentCheckpoints(const Worker& worker,
                                     const std::vector<int64_t>& found) {
  const int64_t mine = found[static_cast<size_t>(worker.env.rank)];
  const auto other =
      std::find_if(found.begin(), found.end(),
                   [&](int64_t theirs) { return theirs != mine; });
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: rank ", worker.env.rank, " and rank ", other - found.begin(),
      " see different checkpoints (steps ", mine, " and ", *other,
      "; below zero: none); --checkpoint_dir must be a folder that all "
      "machines share"));
}

}  // namespace

NamedTensors ModelTensors(const Model& model) {
  NamedTensors tensors;
  for (auto& [name, tensor] : AllTensors(model)) {
    if (!IsCopy(model, name)) tensors.emplace_back(name, tensor);
  }
  return tensors;
}

std::string LossDecidingConfig(const TrainConfig& config, int64_t total_steps,
                               const Worker& worker) {
  const OptimizerConfig& optimizer = config.optimizer;
  // The cosine's shape depends on where it ends; other schedules may be
  // prolonged.
  const int64_t cosine_steps =
      optimizer.lr_schedule == "cosine" ? total_steps : 0;
  // Image files are the same wherever they lie; a text is whatever it is.
  const std::string text =
      config.data.dataset == "text" ? config.data.data_dir : "";
  return Json{{kReplicas, worker.replicas()},
              {"model", config.model.name},
              {"model_size", config.model.size},
              {"depth", config.model.depth},
              {"width", config.model.width},
              {"sequence_length", config.model.sequence_length},
              {"dropout", config.model.dropout},
              {"tied_head", config.model.tied_head},
              {"dataset", config.data.dataset},
              {"data_dir", text},
              {"train_size", config.data.train_size},
              {"batch_size", config.data.batch_size},
              {"drop_last", config.data.drop_last},
              {"accumulate", config.accumulate},
              {"optimizer", optimizer.name},
              {"lr", optimizer.learning_rate},
              {"weight_decay", optimizer.weight_decay},
              {"momentum", optimizer.momentum},
              {"clip_grad_norm", optimizer.clip_grad_norm},
              {"warmup_steps", optimizer.warmup_steps},
              {"lr_schedule", optimizer.lr_schedule},
              {"precision", PrecisionName(config.precision)},
              {"seed", config.seed},
              {kCosineSteps, cosine_steps},
              {kExchange, worker.settings}}
      .dump(-1, ' ', false,
            Json::error_handler_t::replace);  // paths: any bytes
}

absl::StatusOr<Checkpoint> Capture(const TrainConfig& config,
                                   int64_t total_steps, const Worker& worker,
                                   const Model& model,
                                   const Optimizer& optimizer,
                                   const Progress& progress) {
  Checkpoint checkpoint;
  checkpoint.step = progress.step;
  checkpoint.epoch = progress.epoch;
  checkpoint.position = progress.position;
  checkpoint.metadata[kConfigKey] =
      LossDecidingConfig(config, total_steps, worker);
  for (auto& [name, tensor] : ModelTensors(model)) {
    checkpoint.tensors.emplace_back(absl::StrCat("model.", name), tensor);
  }
  for (auto& [name, tensor] : optimizer.State()) {
    if (IsCopy(model, name)) continue;
    checkpoint.tensors.emplace_back(absl::StrCat("optimizer.", name), tensor);
  }
  absl::Status status = AddPerReplica(worker, GeneratorState(worker), RngName,
                                      &checkpoint.tensors);
  if (!status.ok()) return status;
  const torch::Tensor sums = at::tensor(
      {progress.epoch_loss, static_cast<double>(progress.epoch_examples),
       progress.epoch_seconds},
      at::kDouble);
  status = AddPerReplica(worker, sums, SumsName, &checkpoint.tensors);
  if (!status.ok()) return status;
  return checkpoint;
}

absl::StatusOr<Progress> Restore(const Checkpoint& checkpoint,
                                 const TrainConfig& config, int64_t total_steps,
                                 const Worker& worker, Model& model,
                                 Optimizer& optimizer) {
  const auto saved_config = checkpoint.metadata.find(kConfigKey);
  const std::string saved_text =
      saved_config == checkpoint.metadata.end() ? "" : saved_config->second;
  absl::Status status = CheckConfig(
      saved_text, LossDecidingConfig(config, total_steps, worker), worker);
  if (!status.ok()) return status;

  const TensorMap saved(checkpoint.tensors.begin(), checkpoint.tensors.end());
  for (auto& [name, tensor] : AllTensors(model)) {
    status = CopyInto(saved, absl::StrCat("model.", OwnersName(model, name)),
                      tensor);
    if (!status.ok()) return status;
  }
  for (auto& [name, tensor] : optimizer.State()) {
    status = CopyInto(
        saved, absl::StrCat("optimizer.", OwnersName(model, name)), tensor);
    if (!status.ok()) return status;
  }
  Progress progress;
  progress.step = checkpoint.step;
  progress.epoch = checkpoint.epoch;
  progress.position = checkpoint.position;
  status = RestoreReplica(saved, worker, &progress);
  if (!status.ok()) return status;
  return progress;
}

absl::StatusOr<std::optional<Checkpoint>> LoadForResume(
    CheckpointStore& store, const Worker& worker, const Model& model,
    const Optimizer& optimizer) {
  CheckpointRequest request;
  request.tensors = NeededTensors(model, optimizer);
  std::vector<int64_t> first_found;  // by rank
  for (;;) {
    std::vector<std::string> warnings;
    auto loaded = store.LoadLatest(&warnings, request);
    // A rank that cannot load must not leave the others waiting: all learn what
    // each found.
    const int64_t mine = !loaded.ok()          ? kNotLoaded
                         : loaded->has_value() ? (*loaded)->step
                                               : kNoCheckpoint;
    auto gathered = Gather(worker, at::tensor({mine}, at::kLong));
    if (!gathered.ok()) return gathered.status();
    std::vector<int64_t> found;
    for (const torch::Tensor& step : *gathered)
      found.push_back(step.item<int64_t>());
    const auto [least, most] = std::minmax_element(found.begin(), found.end());
    if (worker.is_first() || mine < *most) {
      for (const std::string& warning : warnings)
        std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    if (!loaded.ok() || *least == *most) return loaded;
    if (first_found.empty()) first_found = found;
    if (*least < 0) return SeeDifferentCheckpoints(worker, first_found);
    // A shard that only some ranks read is damaged there: all take the step
    // that those could load.
    request.last_step = *least;
  }
}

}  // namespace rankwise
