// Keeps gradients within the range of 16-bit floats by scaling the loss
// (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2), as
// torch.amp.GradScaler does: the scale rises until gradients overflow; the step
// in which they do is skipped.
#ifndef RANKWISE_TRAINERS_GRAD_SCALER_H_
#define RANKWISE_TRAINERS_GRAD_SCALER_H_

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rankwise {

struct GradScalerConfig {
  double initial_scale = 65536;
  double growth = 2;  // after growth_interval steps in a row without overflow
  double backoff = 0.5;  // after a step with one
  int64_t growth_interval = 2000;
};

// All of it lives on the device: nothing here blocks the host but what says so,
// and all of it can be recorded into a graph. Not thread-safe.
class GradScaler {
 public:
  GradScaler(torch::Device device, const GradScalerConfig& config);

  // What backward starts from.
  torch::Tensor Scale(const torch::Tensor& loss) const;

  // Before a step's first Unscale.
  void Begin();
  // Divides the gradients by the scale in place. They are those that the update
  // reads: where ranks average theirs, the averages, so that all ranks see the
  // same overflows.
  void Unscale(const std::vector<torch::Tensor>& gradients);
  // 1 where a gradient that was unscaled since Begin is not finite, else 0;
  // fp32 scalar.
  const torch::Tensor& found_inf() const { return found_inf_; }
  // After the step: sets the next one's scale.
  void Update();

  // Live tensors: copying into them restores the state.
  std::vector<std::pair<std::string, torch::Tensor>> State() const;

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

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_GRAD_SCALER_H_
