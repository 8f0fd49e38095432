#include "trainers/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace rankwise {

GradScaler::GradScaler(torch::Device device, const GradScalerConfig& config)
    : config_(config) {
  const at::TensorOptions on_device(device);
  scale_ = at::full({}, config.initial_scale, on_device.dtype(at::kFloat));
  growth_tracker_ = at::zeros({}, on_device.dtype(at::kInt));
  found_inf_ = at::zeros({}, on_device.dtype(at::kFloat));
  skipped_ = at::zeros({}, on_device.dtype(at::kDouble));
}

torch::Tensor GradScaler::Scale(const torch::Tensor& loss) const {
  return loss * scale_;
}

void GradScaler::Begin() { found_inf_.zero_(); }

void GradScaler::Unscale(const std::vector<torch::Tensor>& gradients) {
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  // In fp64, so that the reciprocal is rounded once.
  const torch::Tensor inverse = scale_.to(at::kDouble).reciprocal();
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_,
                                                 inverse.to(at::kFloat));
}

void GradScaler::Update() {
  const at::NoGradGuard no_grad;
  skipped_.add_(found_inf_);
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, config_.growth,
                         config_.backoff, config_.growth_interval);
}

std::vector<std::pair<std::string, torch::Tensor>> GradScaler::State() const {
  return {{"grad_scaler.scale", scale_},
          {"grad_scaler.growth_tracker", growth_tracker_}};
}

double GradScaler::scale() const { return scale_.item<double>(); }

int64_t GradScaler::skipped_steps() const {
  return static_cast<int64_t>(skipped_.item<double>());
}

}  // namespace rankwise
