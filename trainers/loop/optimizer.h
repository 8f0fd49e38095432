// Adam and SGD in one kernel call each for all parameters (ATen's fused
// optimizers), with state that a checkpoint can carry; their learning rate, and
// the loss scaling that 16-bit floats need.
#ifndef RANKWISE_TRAINERS_LOOP_OPTIMIZER_H_
#define RANKWISE_TRAINERS_LOOP_OPTIMIZER_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainers/loop/config.h"

namespace rankwise {

// The learning rate of each step: linear warm-up, then constant or cosine.
struct LearningRate {
  double peak = 1e-3;
  int64_t warmup_steps = 0;  // step w of them runs at peak * w / warmup_steps
  int64_t total_steps = 0;   // where the cosine reaches zero
  bool cosine = false;

  // The rate of optimizer step `step`, counted from 1. Cosine: Loshchilov and
  // Hutter 2017, equation 5, without restarts.
  double At(int64_t step) const;
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct GradScalerConfig {
  double initial_scale = 65536;
  double growth = 2;  // after growth_interval steps in a row without overflow
  double backoff = 0.5;  // after a step with one
  int64_t growth_interval = 2000;
};

// Keeps gradients within the range of 16-bit floats by scaling the loss
// (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2), as
// torch.amp.GradScaler does: the scale rises until gradients overflow; the step
// in which they do is skipped. All of it stays on the device, without blocking
// the host, and can be captured in a graph. Not thread-safe.
class GradScaler {
 public:
  GradScaler(torch::Device device, const GradScalerConfig& config);

  // What backward starts from.
  torch::Tensor Scale(const torch::Tensor& loss) const;

  // Divides the gradients by the scale in place. Where ranks average theirs,
  // these are the averages, so that all ranks see the same overflows.
  void Unscale(const std::vector<torch::Tensor>& gradients);
  // 1 where a gradient of the last Unscale is not finite, else 0; fp32 scalar.
  const torch::Tensor& found_inf() const { return found_inf_; }
  // After the step: sets the next one's scale.
  void Update();

  // Live tensors: copying into them restores the state.
  NamedTensors State() const;

  // Both wait for the device. Steps skipped since construction.
  double scale() const;
  int64_t skipped_steps() const;

 private:
  const GradScalerConfig config_;
  torch::Tensor scale_;           // fp32 scalar
  torch::Tensor growth_tracker_;  // int32 scalar: steps since the last change
  torch::Tensor found_inf_;
  torch::Tensor skipped_;  // fp64 scalar
};

// Not thread-safe.
class Optimizer {
 public:
  // As MakeOptimizer, which checks `config.name`.
  Optimizer(const NamedTensors& owned, const OptimizerConfig& config);

  // Drops the gradients: the next backward writes and does not add.
  void ZeroGrad();

  // What backward starts from: `loss`, or with a scaler, the scaled one.
  torch::Tensor ScaledLoss(const torch::Tensor& loss) const;

  // Clips the gradients where configured, then updates the parameters that have
  // one. With a scaler the gradients are unscaled first, and a step in which
  // one is not finite changes nothing but the scale.
  void Step(double learning_rate);

  // From the next step on, for training under fp16 autocast with all parameters
  // on one device. Call before State is restored.
  void UseGradScaler(const GradScalerConfig& config);
  const GradScaler* grad_scaler() const { return scaler_.get(); }  // or null

  // Step takes its rate from this scalar (MakeRate's) and not from its argument
  // until given an undefined one: for steps that are captured once and replayed
  // with other rates.
  void ReadRateFrom(torch::Tensor learning_rate);
  // A scalar for ReadRateFrom: fp32 on a GPU, whose kernels read nothing else,
  // and fp64 on a CPU, which computes as with a plain number.
  torch::Tensor MakeRate() const;

  // Where other ranks hold other parts of the model: `add_up` sums a scalar
  // over those ranks, in place, so that clipping sees the norm of the whole
  // model. Another rank counts the parameters named in `counted_elsewhere`.
  void ShareNorm(std::function<void(torch::Tensor& squared_norm)> add_up,
                 const std::vector<std::string>& counted_elsewhere);

  // Norm of the last Step's gradients before clipping; a scalar on the device,
  // undefined without clipping.
  const torch::Tensor& gradient_norm() const { return gradient_norm_; }

  // Those that it updates.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

  // Live tensors (`exp_avg.fc1.weight`): copying into them restores the state.
  NamedTensors State() const;

 private:
  // Where `found_inf`, if there is one, is 1, nothing changes.
  void Update(const std::vector<size_t>& active, double learning_rate,
              const std::optional<torch::Tensor>& found_inf);
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

  const OptimizerConfig config_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  // By name of the moment, such as "exp_avg": one tensor per parameter.
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> moments_;
  torch::Tensor rate_;  // undefined: from Step's argument
  torch::Tensor gradient_norm_;
  std::unique_ptr<GradScaler> scaler_;          // null: no scaling
  std::function<void(torch::Tensor&)> add_up_;  // null: all is here
  std::vector<bool> counted_elsewhere_;         // by parameter
};

// Those that require gradients, under their names in `module`.
NamedTensors TrainableParameters(const torch::nn::Module& module);

// Over `owned`, the parameters that this rank updates. `config.name`: adam
// (Kingma and Ba 2015, algorithm 1, betas 0.9 and 0.999, eps 1e-8), adamw
// (Loshchilov and Hutter 2019, algorithm 2) or sgd; InvalidArgument otherwise.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const NamedTensors& owned, const OptimizerConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_OPTIMIZER_H_
