// The models that the trainers train, by name: each is a sequence of layers
// that can be cut anywhere.
#ifndef RANKWISE_TRAINERS_MODELS_MODEL_H_
#define RANKWISE_TRAINERS_MODELS_MODEL_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainers/layers/rotary.h"
#include "trainers/models/division.h"
#include "trainers/models/memory/layer_memory.h"

namespace rankwise {

// Zero and empty mean the model's default; models refuse unused fields.
struct ModelConfig {
  std::string name = "simple_cnn";
  std::string size = {};        // gpt, llama, vit: name of a size
  int64_t depth = 0;            // mlp, gpt, llama, vit: hidden layers or blocks
  int64_t width = 0;            // mlp, gpt, llama, vit: features between layers
  int64_t input_width = 0;      // mlp: features per example
  int64_t classes = 0;          // mlp
  int64_t sequence_length = 0;  // gpt, llama: tokens per example
  int64_t max_positions = 0;    // llama: of config.json; 0 without one
  int64_t vocabulary = 0;       // gpt, llama
  double dropout = 0;           // gpt, vit
  // gpt, llama: the head shares the weights of the token embedding.
  std::optional<bool> tied_head = {};
  // llama: attention heads, key and value heads, features of a head and of the
  // MLP.
  int64_t heads = 0, kv_heads = 0, head_width = 0, ffn_width = 0;
  std::optional<bool> qk_norm = {};  // llama: norms of queries and keys
  double norm_epsilon = 0;           // llama
  double rope_theta = 0;             // llama: base of the rotary positions
  std::optional<RopeScaling> rope_scaling = {};  // llama
  ModelSplit split = {};                         // mlp, mp_mlp, gpt, llama, vit
};

// A layer as built.
struct Layer {
  // Registered under the layer's name; nullptr without parameters.
  std::shared_ptr<torch::nn::Module> module;
  // [B, previous layer's output_shape...] to [B, output_shape...].
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};

// Returns a layer that runs `module`'s Forward.
template <typename Module>
Layer MakeLayer(std::shared_ptr<Module> module) {
  return {module,
          [module](const torch::Tensor& x) { return module->Forward(x); }};
}

// Shared state of layers built one after another.
struct LayerContext {
  // Replaces `parameter`, drawn as a whole, by this rank's part of it.
  void Divide(torch::Tensor parameter, const Division& division);

  ModelParallel parallel;
  // The divided parameters.
  std::vector<std::pair<torch::Tensor, Division>> divided;
  // Whole parameters used only on this rank's tokens, under sequence
  // parallelism: each rank's gradient is one summand.
  std::vector<torch::Tensor> partial_gradient_parameters;
  // Weights to which later layers are tied, by full name
  // ("embedding.token.weight").
  std::map<std::string, torch::Tensor> weights;
  // By name in `weights`: whether this model keeps the owning layer. If not, a
  // tied layer registers its own copy.
  std::map<std::string, bool> owner_kept;
};

struct LayerSpec {
  std::string name;  // prefix of its parameters' names; no dots
  std::vector<int64_t> output_shape;  // of one example, undivided
  // One rank's part of it; if empty, MakeModelSpec copies output_shape.
  std::vector<int64_t> part_shape = {};
  int64_t parameters = 0;  // undivided; a tied weight counts in its owner
  // Shapes of one rank's part of the parameters.
  ParameterShapes part_parameters = {};
  KeptForBackward kept = {};
  // Whether `kept` includes the layer's input; if not, a stage that begins with
  // this layer stores the input that it received.
  bool keeps_input = true;
  // Numbers of one example's activations summed along tp in forward and
  // backward.
  double exchanged_along_tp = 0;
  double flops = 0;  // forward of one example; a multiply-add counts as 2
  bool has_dropout = false;
  // Draws the initial weights from the default CPU generator, in the order of
  // the same module written in Python.
  std::function<Layer(LayerContext& context)> build;
};

// A weight of layer `owner` that layer `user` also uses. If a model keeps only
// the user, it holds a copy named `copy_name`.
struct TiedWeight {
  size_t owner = 0, user = 0;  // layers
  std::string name, copy_name;
  std::vector<int64_t> part_shape = {};  // one rank's part of it
};

enum class LossKind { kCrossEntropy, kMeanSquaredError };

// A model's description, with the training defaults of its publication or
// tutorial. Cheap to copy; builds nothing.
struct ModelSpec {
  std::string name;
  LossKind loss = LossKind::kCrossEntropy;
  std::vector<int64_t> example_shape;  // of one input, without the batch
  // Classes or token values of the output; 0 for regression.
  int64_t num_classes = 0;
  std::string default_dataset;
  std::string default_optimizer = "adam";
  double default_learning_rate = 1e-3;
  std::vector<LayerSpec> layers;
  std::vector<TiedWeight> ties;
  // The sequence whose targets are divided along cp; nullopt if every rank uses
  // the whole target.
  std::optional<SequenceShape> target_sequence = {};
  bool divided_classes = false;  // the output's classes are divided along tp

  int64_t parameters() const;
  double flops() const;  // forward of one example
};

std::vector<std::string> ModelNames();

// Returns the description. NotFound naming the known models; InvalidArgument,
// with the flag as typed, for an unknown size or a field that the model lacks.
absl::StatusOr<ModelSpec> MakeModelSpec(const ModelConfig& config);

// Layers [begin, end).
struct LayerRange {
  size_t begin = 0, end = 0;
  bool contains(size_t layer) const { return layer >= begin && layer < end; }
};

// A whole model, or the layers that one pipeline rank keeps. Parameters have
// the same names ("conv1.weight") and initial values in both. Not thread-safe.
class Model : public torch::nn::Module {
 public:
  explicit Model(const ModelSpec& spec);
  // Builds every layer in order, one at a time, but keeps only those of `kept`,
  // and of each this rank's part according to `parallel`.
  Model(const ModelSpec& spec, absl::Span<const LayerRange> kept,
        const ModelParallel& parallel = {});

  // Runs all layers, which must all be kept: input [B, example_shape...],
  // normalised; returns [B, outputs...].
  virtual torch::Tensor Forward(const torch::Tensor& input);
  // Runs the layers of `range`, which must all be kept.
  torch::Tensor Forward(const torch::Tensor& input, LayerRange range);

  // RunLayer calls `forward`, which may be called again in backward.
  using LayerForward = std::function<torch::Tensor(const torch::Tensor&)>;
  using RunLayer = std::function<torch::Tensor(
      size_t layer, const LayerForward& forward, const torch::Tensor& x)>;
  // From now on every Forward runs its layers by `run_layer`, such as an
  // engine's that gathers their parameters. With `collective`, all ranks along
  // dp must run the same number of Forwards.
  void SetRunLayer(RunLayer run_layer, bool collective);
  bool forward_is_collective() const { return forward_is_collective_; }

  // Returns the scalar mean loss of this rank's `output` against the whole
  // target. The mean over the ranks along cp is that of all tokens; the ranks
  // along tp return the same value.
  torch::Tensor LossOf(const torch::Tensor& output,
                       const torch::Tensor& target) const;
  // Returns the whole output from this rank's part `output`. Collective along
  // tp and cp; without gradients.
  torch::Tensor WholeOutput(const torch::Tensor& output) const;

  // From now on a layer's dropout masks depend only on this seed and the
  // layer's position, however often and in whatever order layers run: in
  // training, Forward of a layer with dropout reseeds the device's default
  // generator, and does not restore it.
  void set_dropout_seed(uint64_t seed) { dropout_seed_ = seed; }

  // Number of layers of the whole model, kept or not.
  size_t num_layers() const { return layers_.size(); }
  const std::string& LayerName(size_t layer) const {
    return spec_.layers[layer].name;
  }
  // Returns the parameters that the layer's forward uses, by full name,
  // including weights that it is tied to; empty for a layer that is not kept.
  std::vector<std::pair<std::string, torch::Tensor>> ParametersOf(
      size_t layer) const;
  // Returns the tensors that the layer's forward changes, such as batch norm's
  // running statistics.
  std::vector<torch::Tensor> BuffersOf(size_t layer) const;

  // Weights held as copies because their owner is not kept.
  const std::vector<TiedWeight>& copies() const { return copies_; }

  const ModelParallel& parallel() const { return parallel_; }
  // Division of each parameter that is divided along tp, by full name.
  const std::map<std::string, Division>& divisions() const {
    return divisions_;
  }
  // Parameters whose gradients must be summed along tp before use.
  const std::vector<torch::Tensor>& partial_gradient_parameters() const {
    return partial_gradient_parameters_;
  }

 protected:
  Model() = default;  // no layers: for a different Forward

 private:
  // Returns the seed of the dropout masks of `layer`, equal on all ranks that
  // mask the same activations.
  uint64_t SeedOf(size_t layer) const;
  // Stores the divisions that the layers registered in `context`, by name.
  void FindDivisions(const LayerContext& context);

  ModelSpec spec_;
  ModelParallel parallel_;
  std::vector<Layer> layers_;  // empty for layers not kept
  RunLayer run_layer_;         // nullptr to run layers directly
  bool forward_is_collective_ = false;
  std::vector<TiedWeight> copies_;
  uint64_t dropout_seed_ = 0;
  std::map<std::string, Division> divisions_;
  std::vector<torch::Tensor> partial_gradient_parameters_;
};

// Returns the seed of the dropout masks of the layer at this position of a
// model with seed `seed`, regardless of when and where it runs. All of the low
// 32 bits, the only ones that a CPU generator uses, depend on both arguments.
uint64_t LayerSeed(uint64_t seed, uint64_t layer);

// Returns the mean over the predictions of the batch: cross-entropy of logits
// [B, C] and int64 targets [B], or [B, T, C] and [B, T]; or squared error of
// [B, k] and [B, k].
torch::Tensor Loss(LossKind kind, const torch::Tensor& output,
                   const torch::Tensor& target);

// Converts 4-D parameters to channels-last, in which convolutions run fastest.
void ToChannelsLast(torch::nn::Module& model);

// Returns whether `model` normalises over the batch.
bool HasBatchNorm(const torch::nn::Module& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_MODEL_H_
