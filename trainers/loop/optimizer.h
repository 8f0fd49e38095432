// Adam and SGD, with one kernel call for all parameters (ATen's fused
// optimizers) and state that checkpoints can hold; the learning rate, and loss
// scaling for 16-bit floats.
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
  int64_t warmup_steps = 0;  // step w runs at peak * w / warmup_steps
  int64_t total_steps = 0;   // step at which the cosine reaches zero
  bool cosine = false;

  // Returns the rate of optimizer step `step`, counted from 1. Cosine:
  // Loshchilov and Hutter 2017, equation 5, without restarts.
  double At(int64_t step) const;
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct GradScalerConfig {
  double initial_scale = 65536;
  // Factor after growth_interval consecutive steps without overflow.
  double growth = 2;
  double backoff = 0.5;  // factor after a step with overflow
  int64_t growth_interval = 2000;
};

// Keeps gradients within the range of 16-bit floats by scaling the loss
// (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2), like
// torch.amp.GradScaler: the scale rises until gradients overflow; the
// overflowing step is skipped. All of it runs on the device without blocking
// the host, and can be captured in a graph. Not thread-safe.
class GradScaler {
 public:
  GradScaler(torch::Device device, const GradScalerConfig& config);

  // Returns the loss to start backward from.
  torch::Tensor Scale(const torch::Tensor& loss) const;

  // Divides the gradients by the scale in place. If ranks average gradients,
  // pass the averages, so that all ranks see the same overflows.
  void Unscale(const std::vector<torch::Tensor>& gradients);
  // Returns an fp32 scalar: 1 if the last Unscale found a non-finite gradient,
  // else 0.
  const torch::Tensor& found_inf() const { return found_inf_; }
  // Call after the step; sets the scale of the next step.
  void Update();

  // Returns live tensors: copying into them restores the state.
  NamedTensors State() const;

  // Both block until the device is done. skipped_steps() counts from
  // construction, also after the state was restored.
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
  // See MakeOptimizer, which checks `config.name`.
  Optimizer(const NamedTensors& owned, const OptimizerConfig& config);

  // Drops the gradients: the next backward overwrites instead of accumulating.
  void ZeroGrad();

  // Returns the loss to start backward from: `loss`, scaled if there is a
  // scaler.
  torch::Tensor ScaledLoss(const torch::Tensor& loss) const;

  // Clips the gradients if configured, then updates the parameters that have
  // one. With a scaler, first unscales the gradients; a step with a gradient
  // that is not finite changes only the scale.
  void Step(double learning_rate);

  // Scales losses from the next step on, for training under fp16 autocast with
  // all parameters on one device. Call before State is restored.
  void UseGradScaler(const GradScalerConfig& config);
  const GradScaler* grad_scaler() const { return scaler_.get(); }  // or nullptr

  // Step reads its rate from this scalar (see MakeRate) instead of its
  // argument, until called with an undefined tensor: for steps that are
  // captured once and replayed with other rates.
  void ReadRateFrom(torch::Tensor learning_rate);
  // Returns a scalar for ReadRateFrom: fp32 on a GPU, the only type its kernels
  // read, and fp64 on a CPU, with the same results as a plain number.
  torch::Tensor MakeRate() const;

  // For models whose parts are on several ranks: `add_up` sums a scalar over
  // those ranks, in place, so that clipping uses the norm of the whole model.
  // Another rank counts the parameters named in `counted_elsewhere`.
  void ReduceNormAcross(std::function<void(torch::Tensor& squared_norm)> add_up,
                        const std::vector<std::string>& counted_elsewhere);

  // Returns the norm of the last Step's gradients before clipping, a scalar on
  // the device; undefined without clipping.
  const torch::Tensor& gradient_norm() const { return gradient_norm_; }

  // Returns the parameters that it updates.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

  // Live tensors (`exp_avg.fc1.weight`): copying into them restores the state.
  NamedTensors State() const;

 private:
  // If `found_inf` is given and 1, nothing changes.
  void Update(const std::vector<size_t>& active, double learning_rate,
              const std::optional<torch::Tensor>& found_inf);
  std::optional<torch::Tensor> UnscaleGradients(
      const std::vector<size_t>& active);
  // Scales the gradients so that their joint 2-norm is at most clip_grad_norm
  // (torch.nn.utils.clip_grad_norm_), without reading the norm back to the
  // host.
  void ClipGradNorm(const std::vector<size_t>& active);
  torch::Tensor GradNorm(const std::vector<size_t>& active) const;
  // Groups by device: the fused kernels take the parameters of one device.
  std::vector<std::vector<size_t>> ByDevice(
      const std::vector<size_t>& active) const;

  const OptimizerConfig config_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  // By name of the moment, such as "exp_avg", one tensor per parameter.
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> moments_;
  torch::Tensor rate_;  // if undefined, Step's argument is used
  torch::Tensor gradient_norm_;
  std::unique_ptr<GradScaler> scaler_;          // nullptr without scaling
  std::function<void(torch::Tensor&)> add_up_;  // nullptr without other parts
  std::vector<bool> counted_elsewhere_;         // by parameter
};

// Returns the parameters that require gradients, under their names in `module`.
NamedTensors TrainableParameters(const torch::nn::Module& module);

// Creates an optimizer over `owned`, the parameters that this rank updates.
// `config.name`: adam (Kingma and Ba 2015, algorithm 1, betas 0.9 and 0.999,
// eps 1e-8), adamw (Loshchilov and Hutter 2019, algorithm 2) or sgd;
// InvalidArgument otherwise.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const NamedTensors& owned, const OptimizerConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_OPTIMIZER_H_
