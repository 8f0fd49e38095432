#include "trainers/models/model.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/tensor/vocabulary.h"
#include "samplers/datasets/split_mix.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"

namespace rankwise {
namespace {

bool Keeps(absl::Span<const LayerRange> kept, size_t layer) {
  return absl::c_any_of(
      kept, [&](const LayerRange& range) { return range.contains(layer); });
}

// Seeds the device's default generator without restoring its earlier state.
void SeedGenerator(c10::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

std::string IfGiven(std::optional<bool> value) {
  return value.has_value() ? (*value ? "true" : "false") : "";
}

std::string IfGiven(const std::optional<RopeScaling>& scaling) {
  if (!scaling.has_value()) return "";
  return absl::StrCat(scaling->factor, ",", scaling->low_frequency_factor, ",",
                      scaling->high_frequency_factor, ",",
                      scaling->original_tokens);
}

std::string AboveOne(int size) { return size > 1 ? absl::StrCat(size) : ""; }

// Returns the fields of ModelConfig that not all models use: flag names and
// values, which are "" or "0" if not given.
std::vector<std::pair<std::string, std::string>> OptionsOf(
    const ModelConfig& config) {
  return {{"model_size", config.size},
          {"depth", absl::StrCat(config.depth)},
          {"width", absl::StrCat(config.width)},
          {"input_width", absl::StrCat(config.input_width)},
          {"classes", absl::StrCat(config.classes)},
          {"sequence_length", absl::StrCat(config.sequence_length)},
          {"vocabulary", absl::StrCat(config.vocabulary)},
          {"dropout", absl::StrCat(config.dropout)},
          {"tied_head", IfGiven(config.tied_head)},
          {"heads", absl::StrCat(config.heads)},
          {"kv_heads", absl::StrCat(config.kv_heads)},
          {"head_width", absl::StrCat(config.head_width)},
          {"ffn_width", absl::StrCat(config.ffn_width)},
          {"qk_norm", IfGiven(config.qk_norm)},
          {"norm_epsilon", absl::StrCat(config.norm_epsilon)},
          {"rope_theta", absl::StrCat(config.rope_theta)},
          {"rope_scaling", IfGiven(config.rope_scaling)},
          {"tp", AboveOne(config.split.tensor)},
          {"cp", AboveOne(config.split.context)},
          {"sequence_parallel", config.split.sequence ? "true" : ""}};
}

struct Entry {
  const char* name;
  absl::StatusOr<ModelSpec> (*make)(const ModelConfig& config);
  std::set<std::string> options;  // options that the model uses
};

const std::vector<Entry>& Entries() {
  static const auto* const kEntries = new std::vector<Entry>{
      {"simple_cnn", SimpleCnnSpec, {}},
      {"linear", LinearSpec, {}},
      {"mp_mlp", MpMlpSpec, {"tp"}},
      {"mlp", MlpSpec, {"depth", "width", "input_width", "classes", "tp"}},
      {"gpt",
       GptSpec,
       {"model_size", "depth", "width", "sequence_length", "vocabulary",
        "dropout", "tied_head", "tp", "cp", "sequence_parallel"}},
      {"llama",
       LlamaSpec,
       {"model_size", "depth", "width", "sequence_length", "vocabulary",
        "tied_head", "heads", "kv_heads", "head_width", "ffn_width", "qk_norm",
        "norm_epsilon", "rope_theta", "rope_scaling", "tp", "cp",
        "sequence_parallel"}},
      {"vit",
       VitSpec,
       {"model_size", "depth", "width", "dropout", "tp", "cp",
        "sequence_parallel"}},
      {"simple_cnn_bn", SimpleCnnSpec, {}},
  };
  return *kEntries;
}

absl::Status Refuse(const Entry& entry, const std::string& option,
                    const std::string& value) {
  // tensor_parallel has no --tp: its tp is the number of ranks.
  const char* dashes = option == "tp" ? "" : "--";
  std::vector<std::string> takers;
  for (const Entry& other : Entries()) {
    if (other.options.count(option) > 0) takers.push_back(other.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      dashes, option, "=", value, ": --model=", entry.name,
      " does not take it; only --model=", absl::StrJoin(takers, ", "),
      takers.size() == 1 ? " does" : " do"));
}

}  // namespace

absl::Status CheckSizeFlag(const char* flag, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": must be between 1 and ", most,
                   ", or 0 for the model's own"));
}

absl::Status UnknownSize(const ModelConfig& config,
                         const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(
      absl::StrCat("--model_size=", config.size, ": --model=", config.name,
                   " has no such size; it has ", absl::StrJoin(names, ", ")));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) names.push_back(entry.name);
  return names;
}

absl::StatusOr<ModelSpec> MakeModelSpec(const ModelConfig& config) {
  for (const Entry& entry : Entries()) {
    if (config.name != entry.name) continue;
    for (const auto& [flag, value] : OptionsOf(config)) {
      const bool given = !value.empty() && value != "0";
      if (given && entry.options.count(flag) == 0)
        return Refuse(entry, flag, value);
    }
    ASSIGN_OR_RETURN(ModelSpec spec, entry.make(config));
    for (LayerSpec& layer : spec.layers) {
      if (layer.part_shape.empty()) layer.part_shape = layer.output_shape;
    }
    return spec;
  }
  return absl::NotFoundError(absl::StrCat(
      "--model=", config.name,
      ": no such model; known: ", absl::StrJoin(ModelNames(), ", ")));
}

uint64_t LayerSeed(uint64_t seed, uint64_t layer) {
  return MixIn(MixIn(seed, 0), layer);
}

int64_t ModelSpec::parameters() const {
  int64_t sum = 0;
  for (const LayerSpec& layer : layers) sum += layer.parameters;
  return sum;
}

double ModelSpec::flops() const {
  double sum = 0;
  for (const LayerSpec& layer : layers) sum += layer.flops;
  return sum;
}

Model::Model(const ModelSpec& spec) : Model(spec, {{0, spec.layers.size()}}) {}

void LayerContext::Divide(torch::Tensor parameter, const Division& division) {
  if (parallel.tensor.size() == 1) return;
  parameter.set_data(PartOf(parameter, division, parallel.tensor));
  divided.emplace_back(std::move(parameter), division);
}

Model::Model(const ModelSpec& spec, absl::Span<const LayerRange> kept,
             const ModelParallel& parallel)
    : spec_(spec), parallel_(parallel) {
  LayerContext context;
  context.parallel = parallel;
  for (const TiedWeight& tie : spec.ties) {
    context.owner_kept[tie.name] = Keeps(kept, tie.owner);
    if (Keeps(kept, tie.user) && !Keeps(kept, tie.owner))
      copies_.push_back(tie);
  }
  for (const LayerSpec& layer_spec : spec.layers) {
    Layer layer = layer_spec.build(context);
    const bool keeps = Keeps(kept, layers_.size());
    layers_.push_back(keeps ? layer : Layer());
    if (keeps && layer.module != nullptr)
      register_module(layer_spec.name, layer.module);
  }
  FindDivisions(context);
}

void Model::FindDivisions(const LayerContext& context) {
  for (const auto& entry : named_parameters()) {
    for (const auto& [parameter, division] : context.divided) {
      if (parameter.is_same(entry.value())) divisions_[entry.key()] = division;
    }
    for (const torch::Tensor& parameter : context.partial_gradient_parameters) {
      if (parameter.is_same(entry.value()))
        partial_gradient_parameters_.push_back(parameter);
    }
  }
}

torch::Tensor Model::Forward(const torch::Tensor& input) {
  return Forward(input, {0, layers_.size()});
}

torch::Tensor Model::Forward(const torch::Tensor& input, LayerRange range) {
  torch::Tensor x = input;
  for (size_t i = range.begin; i < range.end; ++i) {
    TORCH_CHECK(i < layers_.size() && layers_[i].forward,
                "this model does not hold layer ", i);
    std::optional<uint64_t> seed;
    if (spec_.layers[i].has_dropout && is_training()) seed = SeedOf(i);
    const auto forward = [this, i, seed](const torch::Tensor& layer_input) {
      if (seed.has_value()) SeedGenerator(layer_input.device(), *seed);
      return layers_[i].forward(layer_input);
    };
    x = run_layer_ == nullptr ? forward(x) : run_layer_(i, forward, x);
  }
  return x;
}

void Model::SetRunLayer(RunLayer run_layer, bool collective) {
  run_layer_ = std::move(run_layer);
  forward_is_collective_ = collective;
}

std::vector<std::pair<std::string, torch::Tensor>> Model::ParametersOf(
    size_t layer) const {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  if (layers_[layer].forward == nullptr) return parameters;  // not kept
  const std::string prefix = absl::StrCat(LayerName(layer), ".");
  for (const auto& entry : named_parameters()) {
    const bool tied = absl::c_any_of(spec_.ties, [&](const TiedWeight& tie) {
      return tie.user == layer && tie.name == entry.key();
    });
    if (tied || absl::StartsWith(entry.key(), prefix))
      parameters.emplace_back(entry.key(), entry.value());
  }
  return parameters;
}

std::vector<torch::Tensor> Model::BuffersOf(size_t layer) const {
  std::vector<torch::Tensor> buffers;
  const std::string prefix = absl::StrCat(LayerName(layer), ".");
  for (const auto& entry : named_buffers()) {
    if (absl::StartsWith(entry.key(), prefix)) buffers.push_back(entry.value());
  }
  return buffers;
}

uint64_t Model::SeedOf(size_t layer) const {
  const uint64_t seed = LayerSeed(dropout_seed_, layer);
  const TensorParallel& tp = parallel_.tensor;
  int tokens = parallel_.context.place();  // index of this rank's part
  if (tp.sequence_parallel) tokens = tokens * tp.size() + tp.place();
  return tokens == 0 ? seed : MixIn(seed, static_cast<uint64_t>(tokens));
}

torch::Tensor Model::LossOf(const torch::Tensor& output,
                            const torch::Tensor& target) const {
  torch::Tensor here = target;
  if (spec_.target_sequence.has_value()) {
    here = ContextSlice(target, /*dim=*/1, *spec_.target_sequence,
                        parallel_.context);
  }
  if (!spec_.divided_classes) return Loss(spec_.loss, output, here);
  return VocabularyParallelCrossEntropy(output, here, spec_.num_classes,
                                        parallel_.tensor);
}

torch::Tensor Model::WholeOutput(const torch::Tensor& output) const {
  const at::NoGradGuard no_grad;
  torch::Tensor whole = output;
  if (spec_.divided_classes) {
    whole =
        GatherFromRanks(whole, /*dim=*/-1, spec_.num_classes, parallel_.tensor);
  }
  if (!spec_.target_sequence.has_value()) return whole;
  return ContextGather(whole, /*dim=*/1, *spec_.target_sequence,
                       parallel_.context);
}

torch::Tensor Loss(LossKind kind, const torch::Tensor& output,
                   const torch::Tensor& target) {
  if (kind == LossKind::kMeanSquaredError) return at::mse_loss(output, target);
  if (output.dim() <= 2) return at::cross_entropy_loss(output, target);
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten());
}

void ToChannelsLast(torch::nn::Module& model) {
  for (torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

bool HasBatchNorm(const torch::nn::Module& model) {
  return absl::c_any_of(model.modules(), [](const auto& module) {
    return module->template as<torch::nn::BatchNorm1d>() ||
           module->template as<torch::nn::BatchNorm2d>() ||
           module->template as<torch::nn::BatchNorm3d>();
  });
}

}  // namespace rankwise
