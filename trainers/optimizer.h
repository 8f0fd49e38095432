// Adam and SGD in one kernel call each for all parameters (ATen's fused
// optimizers), with state that a checkpoint can carry.
#ifndef RANKWISE_TRAINERS_OPTIMIZER_H_
#define RANKWISE_TRAINERS_OPTIMIZER_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainers/config.h"

namespace rankwise {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Forgets the gradients: the next backward writes them instead of adding to
  // them.
  void ZeroGrad();

  // Clips the gradients if the configuration asks for it, then updates the
  // parameters that have one.
  void Step(double learning_rate);

  // Where other ranks hold other parts of the model: `add_up` adds up a scalar
  // over those ranks, in place, so that clipping sees the norm of the whole
  // model. Parameters named in `counted_elsewhere` are left out of the norm, as
  // another rank counts them.
  void ShareNorm(std::function<void(torch::Tensor& squared_norm)> add_up,
                 const std::vector<std::string>& counted_elsewhere);

  // Live tensors (`exp_avg.fc1.weight`): copying into them restores the state.
  virtual NamedTensors State() const = 0;

 protected:
  Optimizer(const torch::nn::Module& model, const OptimizerConfig& config);

  virtual void Update(const std::vector<size_t>& active,
                      double learning_rate) = 0;

  NamedTensors NamedState(const std::string& prefix,
                          const std::vector<torch::Tensor>& tensors) const;

  const OptimizerConfig config_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;

 private:
  // Scales the gradients so that their joint 2-norm is at most clip_grad_norm
  // (torch.nn.utils.clip_grad_norm_), without reading the norm back to the
  // host.
  void ClipGradNorm(const std::vector<size_t>& active);
  torch::Tensor GradNorm(const std::vector<size_t>& active) const;
  // The fused kernels take the parameters of one device at a time.
  std::vector<std::vector<size_t>> ByDevice(
      const std::vector<size_t>& active) const;

  std::function<void(torch::Tensor&)> add_up_;  // null: all is here
  std::vector<bool> counted_elsewhere_;         // by parameter
};

// `config.name` adam (Kingma and Ba 2015, algorithm 1, betas 0.9 and 0.999, eps
// 1e-8) or sgd; InvalidArgument otherwise.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const torch::nn::Module& model, const OptimizerConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OPTIMIZER_H_
