#include "trainers/loop/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

std::vector<torch::Tensor> Select(const std::vector<torch::Tensor>& tensors,
                                  const std::vector<size_t>& positions) {
  std::vector<torch::Tensor> selected;
  for (size_t i : positions) selected.push_back(tensors[i]);
  return selected;
}

std::vector<torch::Tensor> Gradients(
    const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters)
    gradients.push_back(parameter.grad());
  return gradients;
}

// Arguments of one call of a fused kernel: parameters on one device.
struct Selection {
  std::vector<torch::Tensor> parameters, gradients;
  std::vector<std::vector<torch::Tensor>> moments;  // as Optimizer::moments_
};

constexpr std::array kAdamMoments = {"exp_avg", "exp_avg_sq", "step"};

// Adam, and AdamW, which applies weight decay to the weights instead of the
// gradient. `rate`: a double, or a scalar on the device.
template <typename Rate>
void UpdateByAdam(Selection& selected, const OptimizerConfig& config,
                  const Rate& rate,
                  const std::optional<torch::Tensor>& found_inf) {
  auto& [parameters, gradients, moments] = selected;
  std::vector<torch::Tensor>& steps = moments[2];
  at::_foreach_add_(steps, 1);
  const auto run = [&](auto kernel) {
    kernel(parameters, gradients, /*exp_avg=*/moments[0],
           /*exp_avg_sq=*/moments[1],
           /*max_exp_avg_sqs=*/std::vector<torch::Tensor>(), steps, rate,
           /*beta1=*/0.9, /*beta2=*/0.999, config.weight_decay,
           /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false,
           /*grad_scale=*/std::optional<torch::Tensor>(), found_inf);
  };
  if (config.name == "adamw") {
    run([](auto&&... args) { at::_fused_adamw_(args...); });
  } else {
    run([](auto&&... args) { at::_fused_adam_(args...); });
  }
  // With found_inf the kernel changes nothing; restore the count.
  if (found_inf.has_value()) at::_foreach_add_(steps, *found_inf, /*alpha=*/-1);
}

// Momentum initialised to zero yields `buffer = gradient` in the first step.
template <typename Rate>
void UpdateBySgd(Selection& selected, const OptimizerConfig& config,
                 const Rate& rate,
                 const std::optional<torch::Tensor>& found_inf) {
  auto& [parameters, gradients, moments] = selected;
  at::_fused_sgd_(parameters, gradients,
                  moments.empty() ? std::vector<torch::Tensor>() : moments[0],
                  config.weight_decay, config.momentum, rate,
                  /*dampening=*/0, config.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
}

}  // namespace

double LearningRate::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (!cosine) return peak;
  // The peak is at the last warm-up step, or at step 1 without warm-up.
  const int64_t peak_step = std::max<int64_t>(warmup_steps, 1);
  const double progress =
      static_cast<double>(step - peak_step) /
      static_cast<double>(std::max<int64_t>(total_steps - peak_step, 1));
  return peak * 0.5 *
         (1.0 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
}

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

void GradScaler::Unscale(const std::vector<torch::Tensor>& gradients) {
  found_inf_.zero_();
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

NamedTensors GradScaler::State() const {
  return {{"grad_scaler.scale", scale_},
          {"grad_scaler.growth_tracker", growth_tracker_}};
}

double GradScaler::scale() const { return scale_.item<double>(); }

int64_t GradScaler::skipped_steps() const {
  return static_cast<int64_t>(skipped_.item<double>());
}

Optimizer::Optimizer(const NamedTensors& owned, const OptimizerConfig& config)
    : config_(config) {
  if (config.name != "sgd") {
    for (const char* name : kAdamMoments) moments_.push_back({name, {}});
  } else if (config.momentum != 0) {
    moments_.push_back({"momentum", {}});
  }
  for (const auto& [name, parameter] : owned) {
    names_.push_back(name);
    parameters_.push_back(parameter);
    for (auto& [moment, tensors] : moments_) {
      tensors.push_back(
          moment == "step"
              ? at::zeros(
                    {},
                    parameter.options().dtype(at::kFloat).requires_grad(false))
              : at::zeros_like(parameter));
    }
  }
  counted_elsewhere_.resize(parameters_.size());
}

void Optimizer::ZeroGrad() {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void Optimizer::ReduceNormAcross(
    std::function<void(torch::Tensor&)> add_up,
    const std::vector<std::string>& counted_elsewhere) {
  add_up_ = std::move(add_up);
  for (const std::string& name : counted_elsewhere) {
    const auto found = absl::c_find(names_, name);
    if (found != names_.end())
      counted_elsewhere_[static_cast<size_t>(found - names_.begin())] = true;
  }
}

void Optimizer::Step(double learning_rate) {
  at::NoGradGuard no_grad;
  std::vector<size_t> active;  // positions of parameters with a gradient
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad().defined()) active.push_back(i);
  }
  const std::optional<torch::Tensor> found_inf = UnscaleGradients(active);
  if (config_.clip_grad_norm > 0) ClipGradNorm(active);
  for (const std::vector<size_t>& same_device : ByDevice(active))
    Update(same_device, learning_rate, found_inf);
  if (scaler_ != nullptr) scaler_->Update();
}

void Optimizer::UseGradScaler(const GradScalerConfig& config) {
  TORCH_CHECK(!parameters_.empty(), "nothing to train");
  scaler_ = std::make_unique<GradScaler>(parameters_[0].device(), config);
}

torch::Tensor Optimizer::ScaledLoss(const torch::Tensor& loss) const {
  return scaler_ == nullptr ? loss : scaler_->Scale(loss);
}

std::optional<torch::Tensor> Optimizer::UnscaleGradients(
    const std::vector<size_t>& active) {
  if (scaler_ == nullptr) return std::nullopt;
  scaler_->Unscale(Gradients(Select(parameters_, active)));
  return scaler_->found_inf();
}

void Optimizer::ReadRateFrom(torch::Tensor learning_rate) {
  rate_ = std::move(learning_rate);
}

torch::Tensor Optimizer::MakeRate() const {
  TORCH_CHECK(!parameters_.empty(), "nothing to train");
  const torch::Device device = parameters_[0].device();
  return at::zeros({}, at::TensorOptions(device).dtype(
                           device.is_cpu() ? at::kDouble : at::kFloat));
}

void Optimizer::Update(const std::vector<size_t>& active, double learning_rate,
                       const std::optional<torch::Tensor>& found_inf) {
  Selection selected;
  selected.parameters = Select(parameters_, active);
  selected.gradients = Gradients(selected.parameters);
  for (const auto& [name, tensors] : moments_)
    selected.moments.push_back(Select(tensors, active));
  const auto update = [&](const auto& rate) {
    config_.name == "sgd" ? UpdateBySgd(selected, config_, rate, found_inf)
                          : UpdateByAdam(selected, config_, rate, found_inf);
  };
  rate_.defined() ? update(rate_) : update(learning_rate);
}

NamedTensors Optimizer::State() const {
  NamedTensors state;
  for (const auto& [moment, tensors] : moments_) {
    for (size_t i = 0; i < tensors.size(); ++i)
      state.emplace_back(absl::StrCat(moment, ".", names_[i]), tensors[i]);
  }
  if (scaler_ != nullptr)
    absl::c_move(scaler_->State(), std::back_inserter(state));
  return state;
}

std::vector<std::vector<size_t>> Optimizer::ByDevice(
    const std::vector<size_t>& active) const {
  std::vector<std::vector<size_t>> groups;
  for (size_t i : active) {
    const torch::Device device = parameters_[i].device();
    auto group = absl::c_find_if(groups, [&](auto& other) {
      return parameters_[other.front()].device() == device;
    });
    if (group == groups.end()) group = groups.insert(group, {{}});
    group->push_back(i);
  }
  return groups;
}

torch::Tensor Optimizer::GradNorm(const std::vector<size_t>& active) const {
  // A stage without parameters also takes part in the sum.
  const torch::Device device =
      parameters_.empty() ? torch::Device(at::kCPU) : parameters_[0].device();
  std::vector<torch::Tensor> norms;
  for (const std::vector<size_t>& same_device : ByDevice(active)) {
    std::vector<torch::Tensor> gradients;
    for (size_t i : same_device) {
      if (!counted_elsewhere_[i]) gradients.push_back(parameters_[i].grad());
    }
    if (gradients.empty()) continue;
    for (torch::Tensor& norm : at::_foreach_norm(gradients))
      norms.push_back(norm.to(device));
  }
  torch::Tensor total =
      norms.empty() ? at::zeros({}, at::TensorOptions(device).dtype(at::kFloat))
                    : at::linalg_vector_norm(at::stack(norms));
  if (add_up_ == nullptr) return total;
  total = total.square();
  add_up_(total);
  return total.sqrt();
}

void Optimizer::ClipGradNorm(const std::vector<size_t>& active) {
  gradient_norm_ = GradNorm(active);
  const torch::Tensor scale =
      (config_.clip_grad_norm / (gradient_norm_ + 1e-6)).clamp_max(1.0);
  for (const std::vector<size_t>& same_device : ByDevice(active)) {
    std::vector<torch::Tensor> gradients =
        Gradients(Select(parameters_, same_device));
    at::_foreach_mul_(gradients, scale.to(gradients[0].device()));
  }
}

NamedTensors TrainableParameters(const torch::nn::Module& module) {
  NamedTensors parameters;
  for (const auto& entry : module.named_parameters()) {
    if (entry.value().requires_grad())
      parameters.emplace_back(entry.key(), entry.value());
  }
  return parameters;
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const NamedTensors& owned, const OptimizerConfig& config) {
  for (const char* known : {"adam", "adamw", "sgd"}) {
    if (config.name == known) return std::make_unique<Optimizer>(owned, config);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--optimizer=", config.name,
                   ": no such optimizer; known: adam, adamw, sgd"));
}

}  // namespace rankwise
