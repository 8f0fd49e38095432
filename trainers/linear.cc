#include "trainers/linear.h"

#include <torch/nn/modules/linear.h>

#include <memory>

namespace rankwise {
namespace {

class LinearModel : public Model {
 public:
  LinearModel() : fc_(register_module("fc", torch::nn::Linear(10, 1))) {}

  torch::Tensor Forward(const torch::Tensor& input) override {
    return fc_(input);
  }

 private:
  torch::nn::Linear fc_;
};

}  // namespace

ModelSpec LinearSpec() {
  return {.name = "linear",
          .loss = LossKind::kMeanSquaredError,
          .example_shape = {10},
          .default_dataset = "linear",
          .default_optimizer = "sgd",
          .default_learning_rate = 0.01,
          .build = [] { return std::make_shared<LinearModel>(); }};
}

}  // namespace rankwise
