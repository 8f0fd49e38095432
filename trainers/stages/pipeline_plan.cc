#include "trainers/stages/pipeline_plan.h"

#include <ATen/Context.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/device_facts.h"
#include "parallel/pipeline/engine/transport.h"
#include "parallel/pipeline/simulation/memory.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/training_data.h"
#include "trainers/profile/layer_profile.h"

namespace rankwise {
namespace {

absl::StatusOr<c10::Device> ParseDevice(absl::string_view name) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  absl::string_view number = name;
  int index = -1;
  if (!absl::ConsumePrefix(&number, "cuda:") ||
      !absl::SimpleAtoi(number, &index) || index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", std::string(name), "\" is not a device; write cpu or cuda:N"));
  }
  const int found = VisibleGpus();
  if (index < found)
    return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(name), " is not there: ", Counted(found, "GPU"),
      " can be used here (",
      found == 0 ? WhyNoGpu()
                 : absl::StrCat("cuda:0 to cuda:", found - 1, " are"),
      ")"));
}

std::vector<LayerRange> ToRanges(const Cuts& cuts, size_t num_layers) {
  std::vector<LayerRange> ranges = {{0, num_layers}};
  for (size_t cut : cuts) {
    ranges.back().end = cut;
    ranges.push_back({cut, num_layers});
  }
  return ranges;
}

double Cost(const LayerSpec& layer, const std::string& split) {
  if (split == "parameters") return static_cast<double>(layer.parameters);
  return split == "flops" ? layer.flops : 1;
}

std::string Names(const ModelSpec& spec, const LayerRange& stage) {
  const std::string& first = spec.layers[stage.begin].name;
  const std::string& last = spec.layers[stage.end - 1].name;
  return stage.end - stage.begin == 1 ? first
                                      : absl::StrCat(first, " .. ", last);
}

// Profiles the whole model on `device`, which must hold its weights, gradients
// and one micro-batch's activations. The division of the model does not change
// a layer's share of the time.
absl::StatusOr<std::vector<LayerProfile>> ProfileModel(
    const TrainConfig& config, torch::Device device) {
  constexpr int kRepetitions = 5;
  ModelConfig whole = config.model;
  whole.split = {};
  ASSIGN_OR_RETURN(const ModelSpec spec, MakeModelSpec(whole));
  Worker alone;
  alone.device = device;
  ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(config, spec, alone));
  data.train.loader->StartEpoch(1);
  ASSIGN_OR_RETURN(std::optional<Batch> batch, data.train.loader->Next());
  at::manual_seed(config.seed);
  const auto model = std::make_shared<Model>(spec);
  ToChannelsLast(*model);
  model->to(device);
  const Objective objective(model, spec.loss, config.precision, device);
  std::vector<LayerProfile> profile;
  for (const LayerRecord& layer :
       ProfileLayers({spec, *model, objective}, *batch,
                     {.warmup_passes = 1,
                     .passes = kRepetitions,
                     .precision = config.precision})) {
    profile.push_back(
        {Median(layer.forward_seconds), Median(layer.backward_seconds)});
  }
  return profile;
}

// Returns the first rank's `seconds`, one per layer, on all ranks.
absl::StatusOr<std::vector<double>> CopyFromFirstRank(
    std::vector<double> seconds, const Worker& worker) {
  at::Tensor shared = at::tensor(seconds, at::kDouble).to(worker.device);
  if (worker.comm != nullptr) {
    RETURN_IF_ERROR(worker.comm->Broadcast(shared, /*root=*/0));
  }
  shared = shared.cpu();
  const double* first = shared.data_ptr<double>();
  return std::vector<double>(first, first + seconds.size());
}

}  // namespace

std::vector<MeshAxis> PipelineAxes(const PipelineConfig& config,
                                   int world_size) {
  const int inner = config.context * config.tensor;
  const int replicas = config.replicas > 0 ? config.replicas
                       : config.ranks > 0
                           ? std::max(1, world_size / (config.ranks * inner))
                           : 1;
  const int ranks = config.ranks > 0
                        ? config.ranks
                        : std::max(1, world_size / (replicas * inner));
  const std::map<std::string, int> sizes = {{"pp", ranks},
                                            {"dp", replicas},
                                            {"cp", config.context},
                                            {"tp", config.tensor}};
  std::vector<MeshAxis> axes;
  for (const std::string& axis : config.mesh_order) {
    // Not all trainers have flags for the inner axes.
    const bool is_inner = axis == "cp" || axis == "tp";
    if (!is_inner || inner > 1) axes.push_back({axis, sizes.at(axis)});
  }
  return axes;
}

absl::StatusOr<std::vector<c10::Device>> ParseStageDevices(
    absl::string_view text) {
  std::vector<c10::Device> devices;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    absl::StatusOr<c10::Device> device = ParseDevice(name);
    if (!device.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices=", std::string(text), ": ",
                       std::string(device.status().message())));
    }
    devices.push_back(*device);
  }
  return devices;
}

absl::StatusOr<std::vector<LayerRange>> SplitModel(
    const ModelSpec& model, const std::string& split, int num_stages,
    absl::Span<const double> layer_seconds) {
  const size_t stages = static_cast<size_t>(num_stages);
  absl::StatusOr<Cuts> cuts;
  if (split == "time") {
    cuts = BalanceLayers(layer_seconds, stages);
  } else if (split == "layers" || split == "parameters" || split == "flops") {
    std::vector<double> costs;
    for (const LayerSpec& layer : model.layers)
      costs.push_back(Cost(layer, split));
    cuts = BalanceLayers(costs, stages);
  } else if (!split.empty() &&
             absl::ascii_isalpha(static_cast<unsigned char>(split[0]))) {
    cuts = absl::InvalidArgumentError(
        "must be layers, parameters, flops, time, or cuts such as 2,5");
  } else {
    cuts = ParseCuts(split, model.layers.size(), stages);
  }
  if (cuts.ok()) return ToRanges(*cuts, model.layers.size());
  return absl::Status(
      cuts.status().code(),
      absl::StrCat("--split=", split, ": ", cuts.status().message()));
}

int64_t OutputBytes(const ModelSpec& spec, const LayerRange& stage,
                    int64_t examples, torch::ScalarType type) {
  int64_t bytes = examples * static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : spec.layers[stage.end - 1].part_shape)
    bytes *= size;
  return bytes;
}

std::string StageTable(const ModelSpec& spec,
                       absl::Span<const LayerRange> stages,
                       int64_t micro_batch_examples,
                       absl::Span<const LayerProfile> profile,
                       absl::Span<const torch::ScalarType> output_types) {
  std::string table =
      absl::StrFormat("%5s  %-22s %12s %14s %13s", "stage", "layers",
                      "parameters", "output_bytes", "forward_flops");
  if (!profile.empty())
    absl::StrAppendFormat(&table, " %10s %11s", "forward_ms", "backward_ms");
  const double examples = static_cast<double>(micro_batch_examples);
  for (size_t i = 0; i < stages.size(); ++i) {
    int64_t parameters = 0;
    double flops = 0, forward = 0, backward = 0;
    for (size_t layer = stages[i].begin; layer < stages[i].end; ++layer) {
      parameters += spec.layers[layer].parameters;
      flops += spec.layers[layer].flops * examples;
      if (profile.empty()) continue;
      forward += profile[layer].forward_seconds;
      backward += profile[layer].backward_seconds;
    }
    const int64_t bytes =
        OutputBytes(spec, stages[i], micro_batch_examples,
                    output_types.empty() ? torch::kFloat : output_types[i]);
    absl::StrAppendFormat(&table, "\n%5d  %-22s %12d %14d %13.4g", i,
                          Names(spec, stages[i]), parameters, bytes, flops);
    if (!profile.empty())
      absl::StrAppendFormat(&table, " %10.3f %11.3f", 1e3 * forward,
                            1e3 * backward);
  }
  return table;
}

PipelinePlan::PipelinePlan(const Worker& worker, const PipelineConfig& config,
                           ModelSpec model)
    : worker_(worker), config_(config), model_(std::move(model)) {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (in_one_process() || rank == worker.coordinate("pp"))
      ranks_here_.push_back(rank);
  }
}

absl::StatusOr<std::unique_ptr<PipelinePlan>> PipelinePlan::Create(
    const TrainConfig& config, const Worker& worker,
    const PipelineConfig& pipeline) {
  ASSIGN_OR_RETURN(ModelSpec model, MakeModelSpec(config.model));
  auto plan = std::unique_ptr<PipelinePlan>(
      new PipelinePlan(worker, pipeline, std::move(model)));
  ASSIGN_OR_RETURN(plan->full_, plan->MakeFull(plan->costs_));
  plan->rank_of_stage_ = plan->full_.rank_of_stage;
  RETURN_IF_ERROR(plan->Cut(config, plan->full_.num_stages()));
  ASSIGN_OR_RETURN(plan->full_, plan->MakeFull(plan->costs_));
  ASSIGN_OR_RETURN(
      const Schedule* schedule,
      plan->ScheduleFor(static_cast<size_t>(pipeline.micro_batches)));
  plan->activation_bytes_ = plan->ComputeActivations(config, *schedule);
  for (const StagePass& pass :
       PassesOf(plan->full_, plan->ranks_here_, pipeline.recompute)) {
    const LayerRange& layers = plan->stages_[static_cast<size_t>(pass.stage)];
    plan->passes_.push_back(
        {{layers.begin, layers.end}, pass.backward, pass.completes});
  }
  return plan;
}

absl::Status PipelinePlan::Cut(const TrainConfig& config, int num_stages) {
  const size_t layers = model_.layers.size();
  std::vector<double> forward, backward, seconds;  // by layer
  if (config_.split == "time") {
    forward.resize(layers);
    backward.resize(layers);
    if (worker_.is_first()) {
      ASSIGN_OR_RETURN(profile_, ProfileModel(config, worker_.device));
      for (size_t i = 0; i < layers; ++i) {
        forward[i] = profile_[i].forward_seconds;
        backward[i] = profile_[i].backward_seconds;
      }
    }
    ASSIGN_OR_RETURN(forward, CopyFromFirstRank(forward, worker_));
    ASSIGN_OR_RETURN(backward, CopyFromFirstRank(backward, worker_));
    for (size_t i = 0; i < layers; ++i)
      seconds.push_back(forward[i] + backward[i]);
  }
  ASSIGN_OR_RETURN(stages_,
                   SplitModel(model_, config_.split, num_stages, seconds));
  if (!seconds.empty()) costs_ = CostsOf(forward, backward);
  return absl::OkStatus();
}

int PipelinePlan::num_ranks() const {
  return in_one_process() ? static_cast<int>(worker_.devices.size())
                          : worker_.size("pp");
}

bool PipelinePlan::IsHere(int stage) const {
  const int rank = rank_of_stage_[static_cast<size_t>(stage)];
  return absl::c_linear_search(ranks_here_, rank);
}

torch::Device PipelinePlan::DeviceOf(int rank) const {
  return in_one_process() ? worker_.devices[static_cast<size_t>(rank)]
                          : worker_.device;
}

int PipelinePlan::RankOf(size_t layer) const {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage].contains(layer)) return rank_of_stage_[stage];
  }
  return -1;
}

ModelPlacement PipelinePlan::Placement() const {
  ModelPlacement placement;
  placement.activation_bytes = activation_bytes_;
  placement.passes = passes_;
  placement.sharding = ShardingOf(config_.zero, worker_);
  placement.reads_data =
      IsHere(0) || IsHere(static_cast<int>(stages_.size()) - 1);
  if (in_one_process()) {
    for (size_t layer = 0; layer < model_.layers.size(); ++layer)
      placement.devices.push_back(DeviceOf(RankOf(layer)));
    return placement;
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (IsHere(static_cast<int>(stage)))
      placement.layers.push_back(stages_[stage]);
  }
  return placement;
}

std::string PipelinePlan::DescribeDevices() const {
  std::vector<std::string> names;
  for (const torch::Device& device : worker_.devices)
    names.push_back(device.str());
  const std::set<std::string> different(names.begin(), names.end());
  std::string text =
      absl::StrCat("one process runs the ", Counted(num_ranks(), "rank"),
                   " of the pipeline, on ", absl::StrJoin(names, ", "));
  if (different.count("cpu") > 0) {
    absl::StrAppend(&text,
                    "; slots on the cpu share its cores and run in turn, so "
                    "that their bubbles are not those of several machines");
  } else if (different.size() < names.size()) {
    absl::StrAppend(&text, "; ranks on one device share it");
  }
  return text;
}

}  // namespace rankwise
