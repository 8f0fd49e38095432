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
#include "trainers/models/division.h"
#include "trainers/models/memory/layer_memory.h"

namespace rankwise {

// Zero and empty mean the model's own default; a model refuses a field that it
// does not use.
struct ModelConfig {
  std::string name = "simple_cnn";
  std::string size = {};        // gpt, vit: a named size
  int64_t depth = 0;            // mlp, gpt, vit: hidden layers or blocks
  int64_t width = 0;            // mlp, gpt, vit: features between layers
  int64_t input_width = 0;      // mlp: features of an example
  int64_t classes = 0;          // mlp
  int64_t sequence_length = 0;  // gpt: tokens per example
  double dropout = 0;           // gpt, vit
  bool tied_head = true;        // gpt: the head is the token embedding
  ModelSplit split = {};        // mlp, mp_mlp, gpt, vit
};

// One layer that was built.
struct Layer {
  // Registered under the layer's name; null where there are no parameters.
  std::shared_ptr<torch::nn::Module> module;
  // [B, previous layer's output_shape...] to [B, output_shape...].
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};

// A layer that is `module`, by its Forward.
template <typename Module>
Layer MakeLayer(std::shared_ptr<Module> module) {
  return {module,
          [module](const torch::Tensor& x) { return module->Forward(x); }};
}

// What layers built after one another share.
struct LayerContext {
  // Turns `parameter`, drawn whole, into this rank's part of it.
  void Divide(torch::Tensor parameter, const Division& division);

  ModelParallel parallel;
  // The parameters that are divided.
  std::vector<std::pair<torch::Tensor, Division>> divided;
  // Whole parameters that are used on this rank's tokens alone, under sequence
  // parallelism: each rank's gradient is a part of the sum.
  std::vector<torch::Tensor> of_own_tokens;
  // Weights that later layers are tied to, by their full name
  // ("embedding.token.weight").
  std::map<std::string, torch::Tensor> weights;
  // Whether the layer that owns a weight of `weights` is kept by this model. If
  // it is not, a tied layer registers a copy of its own.
  std::map<std::string, bool> owner_kept;
};

struct LayerSpec {
  std::string name;  // prefix of its parameters' names; no dots
  std::vector<int64_t> output_shape;  // of one example, whole
  // What one rank has of it; MakeModelSpec makes it output_shape where layers
  // leave it empty.
  std::vector<int64_t> part_shape = {};
  int64_t parameters = 0;  // whole; a tied weight counts in the owning layer
  // The shapes of what one rank has of them.
  ParameterShapes part_parameters = {};
  KeptForBackward kept = {};
  // Whether the layer's input is among them: else a stage that begins with it
  // keeps what it has received.
  bool keeps_input = true;
  // Numbers of one example's activations that the ranks along tp sum, forward
  // and backward.
  double exchanged_along_tp = 0;
  double flops = 0;  // forward of one example; a multiply-add counts as 2
  bool has_dropout = false;
  // Draws the initial weights from the default CPU generator, in the order in
  // which the same module written in Python would.
  std::function<Layer(LayerContext& context)> build;
};

// A weight of layer `owner` that layer `user` uses too. Where a model keeps
// only the user, it holds a copy named `copy_name`.
struct TiedWeight {
  size_t owner = 0, user = 0;  // layers
  std::string name, copy_name;
  std::vector<int64_t> part_shape = {};  // what one rank has of it
};

enum class LossKind { kCrossEntropy, kMeanSquaredError };

// A model's description, with the training defaults that it was published or
// taught with. Cheap to copy; builds nothing.
struct ModelSpec {
  std::string name;
  LossKind loss = LossKind::kCrossEntropy;
  std::vector<int64_t> example_shape;  // of one input, without the batch
  // Classes or token values that the output separates; 0 for regression.
  int64_t num_classes = 0;
  std::string default_dataset;
  std::string default_optimizer = "adam";
  double default_learning_rate = 1e-3;
  std::vector<LayerSpec> layers;
  std::vector<TiedWeight> ties;
  // Of a sequence of tokens whose targets are divided along cp; none if every
  // rank has the whole target.
  std::optional<SequenceShape> target_sequence = {};
  bool divided_classes = false;  // the output's classes are divided along tp

  int64_t parameters() const;
  double flops() const;  // forward of one example
};

std::vector<std::string> ModelNames();

// NotFound naming the known models; InvalidArgument for a size that the model
// does not have, or a field that it has no use for, as the flag is typed.
absl::StatusOr<ModelSpec> MakeModelSpec(const ModelConfig& config);

// Layers [begin, end).
struct LayerRange {
  size_t begin = 0, end = 0;
  bool contains(size_t layer) const { return layer >= begin && layer < end; }
};

// A whole model, or the layers of it that one pipeline rank keeps. Parameters
// have the same names ("conv1.weight") and initial values in both. Not
// thread-safe.
class Model : public torch::nn::Module {
 public:
  explicit Model(const ModelSpec& spec);
  // Builds every layer in order but keeps those of `kept` only, one at a time,
  // and of each what `parallel` gives to this rank.
  Model(const ModelSpec& spec, absl::Span<const LayerRange> kept,
        const ModelParallel& parallel = {});

  // All layers: input [B, example_shape...], normalised; returns [B,
  // outputs...]. Needs all layers to be kept.
  virtual torch::Tensor Forward(const torch::Tensor& input);
  // The layers of `range`, all of which must have been kept.
  torch::Tensor Forward(const torch::Tensor& input, LayerRange range);

  // What runs a layer: calls `forward`, which may be called again in backward.
  using LayerForward = std::function<torch::Tensor(const torch::Tensor&)>;
  using RunLayer = std::function<torch::Tensor(
      size_t layer, const LayerForward& forward, const torch::Tensor& x)>;
  // From here on every Forward runs its layers by `run_layer`, such as an
  // engine's that brings their parameters. With `collective` all ranks along dp
  // have to run as many.
  void SetRunLayer(RunLayer run_layer, bool collective);
  bool forward_is_collective() const { return forward_is_collective_; }

  // The scalar mean loss of this rank's `output` against the whole target. The
  // mean of the ranks' along cp is that of all tokens; along tp it is the same
  // on every rank.
  torch::Tensor LossOf(const torch::Tensor& output,
                       const torch::Tensor& target) const;
  // The whole output of which `output` is this rank's part. Collective along tp
  // and cp; without gradients.
  torch::Tensor WholeOutput(const torch::Tensor& output) const;

  // From here on a layer's dropout masks depend on this seed and the layer's
  // position only, however often and in whatever order layers are run: in
  // training, Forward of a layer with dropout reseeds the device's default
  // generator, and does not restore it.
  void set_dropout_seed(uint64_t seed) { dropout_seed_ = seed; }

  // Of the whole model, kept or not.
  size_t num_layers() const { return layers_.size(); }
  const std::string& LayerName(size_t layer) const {
    return spec_.layers[layer].name;
  }
  // What the layer's forward uses, by full name, with weights that it is tied
  // to; none of a layer that is not kept.
  std::vector<std::pair<std::string, torch::Tensor>> ParametersOf(
      size_t layer) const;
  // What the layer's forward changes, such as batch norm's running statistics.
  std::vector<torch::Tensor> BuffersOf(size_t layer) const;

  // Weights held here as copies, whose owner is not kept.
  const std::vector<TiedWeight>& copies() const { return copies_; }

  const ModelParallel& parallel() const { return parallel_; }
  // How the parameters that are divided along tp are divided, by full name.
  const std::map<std::string, Division>& divisions() const {
    return divisions_;
  }
  // Parameters whose gradients are to be summed along tp before they are used.
  const std::vector<torch::Tensor>& of_own_tokens() const {
    return of_own_tokens_;
  }

 protected:
  Model() = default;  // no layers: for a Forward of another kind

 private:
  // Of the dropout masks of `layer`, the same on all ranks that mask the same
  // activations.
  uint64_t SeedOf(size_t layer) const;
  // Under their names, what the layers have told `context` of their parameters.
  void FindDivisions(const LayerContext& context);

  ModelSpec spec_;
  ModelParallel parallel_;
  std::vector<Layer> layers_;  // of layers not kept: empty
  RunLayer run_layer_;         // null: at once
  bool forward_is_collective_ = false;
  std::vector<TiedWeight> copies_;
  uint64_t dropout_seed_ = 0;
  std::map<std::string, Division> divisions_;
  std::vector<torch::Tensor> of_own_tokens_;
};

// Of the dropout masks of a layer in this position of a model that was given
// `seed`: it depends on what is trained and not on when or where that runs. All
// of its 32 low bits, which are what a CPU generator uses, depend on both.
uint64_t LayerSeed(uint64_t seed, uint64_t layer);

// Mean over the predictions of the batch: cross-entropy of logits [B, C] and
// int64 targets [B], or [B, T, C] and [B, T]; or squared error of [B, k] and
// [B, k].
torch::Tensor Loss(LossKind kind, const torch::Tensor& output,
                   const torch::Tensor& target);

// Lays 4-D parameters out channels-last, in which convolutions run fastest.
void ToChannelsLast(torch::nn::Module& model);

// Whether `model` normalises over the batch.
bool HasBatchNorm(const torch::nn::Module& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_MODEL_H_
