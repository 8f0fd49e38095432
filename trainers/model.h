// The models that the trainers train, by name.
#ifndef RANKWISE_TRAINERS_MODEL_H_
#define RANKWISE_TRAINERS_MODEL_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

class Model : public torch::nn::Module {
 public:
  // input [B, example_shape...], normalised; returns [B, outputs].
  virtual torch::Tensor Forward(const torch::Tensor& input) = 0;
};

enum class LossKind { kCrossEntropy, kMeanSquaredError };

// A model's entry in the registry, with the training defaults that it was
// published or taught with.
struct ModelSpec {
  std::string name;
  LossKind loss;
  std::vector<int64_t> example_shape;  // of one input, without the batch
  std::string default_dataset;
  std::string default_optimizer;
  double default_learning_rate;
  // Layers are created in the order of their registration, so that after
  // torch::manual_seed(s) the initial weights equal those of the same module
  // written in Python.
  std::function<std::shared_ptr<Model>()> build;
};

const std::vector<ModelSpec>& AllModels();

// NotFound naming the known models.
absl::StatusOr<const ModelSpec*> FindModel(absl::string_view name);

// Mean over the batch: cross-entropy of logits [B, C] and int64 targets [B], or
// squared error of [B, k] and [B, k].
torch::Tensor Loss(LossKind kind, const torch::Tensor& output,
                   const torch::Tensor& target);

// Lays 4-D parameters out channels-last, the layout that CPU and tensor-core
// convolutions run fastest in.
void ToChannelsLast(torch::nn::Module& model);

int64_t CountParameters(const torch::nn::Module& model);

// Batch statistics of few examples are noise: true if `model` normalises over
// the batch.
bool HasBatchNorm(const torch::nn::Module& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODEL_H_
