// Adam and SGD in one kernel call each for all parameters (ATen's fused
// optimizers), with state that a checkpoint can carry.
#ifndef RANKWISE_TRAINERS_OPTIMIZER_H_
#define RANKWISE_TRAINERS_OPTIMIZER_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainers/config.h"
#include "trainers/grad_scaler.h"

namespace rankwise {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Forgets the gradients: the next backward writes them instead of adding to
  // them.
  void ZeroGrad();

  // What backward starts from: `loss`, or with a scaler, the scaled one.
  torch::Tensor ScaledLoss(const torch::Tensor& loss) const;

  // Clips the gradients if the configuration asks for it, then updates the
  // parameters that have one. With a scaler the gradients are unscaled first,
  // and a step in which one is not finite changes nothing but the scale.
  void Step(double learning_rate);

  // From the next step on, for training under fp16 autocast with all parameters
  // on one device. Call before State is restored.
  void UseGradScaler(const GradScalerConfig& config);
  const GradScaler* grad_scaler() const { return scaler_.get(); }  // or null

  // Step takes its rate from this scalar on the parameters' device, whatever
  // its argument says, until told of an undefined one: for steps that are
  // recorded once and run with other rates. See MakeRate.
  void ReadRateFrom(torch::Tensor learning_rate);
  // A scalar for ReadRateFrom: fp32 on a GPU, whose kernels read nothing else,
  // and fp64 on a CPU, which computes as with a plain number.
  torch::Tensor MakeRate() const;

  // Where other ranks hold other parts of the model: `add_up` adds up a scalar
  // over those ranks, in place, so that clipping sees the norm of the whole
  // model. Parameters named in `counted_elsewhere` are left out of the norm, as
  // another rank counts them.
  void ShareNorm(std::function<void(torch::Tensor& squared_norm)> add_up,
                 const std::vector<std::string>& counted_elsewhere);

  // Live tensors (`exp_avg.fc1.weight`): copying into them restores the state.
  NamedTensors State() const;

 protected:
  Optimizer(const torch::nn::Module& model, const OptimizerConfig& config);

  // Where `found_inf`, if there is one, is 1, nothing changes.
  virtual void Update(const std::vector<size_t>& active, double learning_rate,
                      const std::optional<torch::Tensor>& found_inf) = 0;
  virtual NamedTensors Moments() const = 0;

  NamedTensors NamedState(const std::string& prefix,
                          const std::vector<torch::Tensor>& tensors) const;

  const OptimizerConfig config_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor rate_;  // undefined: from Step's argument

 private:
  std::optional<torch::Tensor> UnscaleGradients(
      const std::vector<size_t>& active);
  // Scales the gradients so that their joint 2-norm is at most clip_grad_norm
  // (torch.nn.utils.clip_grad_norm_), without reading the norm back to the
  // host.
  void ClipGradNorm(const std::vector<size_t>& active);
  torch::Tensor GradNorm(const std::vector<size_t>& active) const;
  // The fused kernels take the parameters of one device at a time.
  std::vector<std::vector<size_t>> ByDevice(
      const std::vector<size_t>& active) const;

  std::unique_ptr<GradScaler> scaler_;          // null: no scaling
  std::function<void(torch::Tensor&)> add_up_;  // null: all is here
  std::vector<bool> counted_elsewhere_;         // by parameter
};

// `config.name` adam (Kingma and Ba 2015, algorithm 1, betas 0.9 and 0.999, eps
// 1e-8), adamw (Loshchilov and Hutter 2019, algorithm 2) or sgd;
// InvalidArgument otherwise.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const torch::nn::Module& model, const OptimizerConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OPTIMIZER_H_
