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

std::vector<torch::Tensor> ZerosLike(
    const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> zeros;
  for (const torch::Tensor& parameter : parameters)
    zeros.push_back(at::zeros_like(parameter));
  return zeros;
}

// Adam, and AdamW, which takes the weight decay from the weights and not by way
// of the gradient.
class Adam : public Optimizer {
 public:
  Adam(const NamedTensors& owned, const OptimizerConfig& config)
      : Optimizer(owned, config),
        exp_avg_(ZerosLike(parameters_)),
        exp_avg_sq_(ZerosLike(parameters_)) {
    for (const torch::Tensor& parameter : parameters_) {
      steps_.push_back(at::zeros(
          {}, parameter.options().dtype(at::kFloat).requires_grad(false)));
    }
  }

  void Update(const std::vector<size_t>& active, double learning_rate,
              const std::optional<torch::Tensor>& found_inf) override {
    std::vector<torch::Tensor> parameters = Select(parameters_, active);
    std::vector<torch::Tensor> gradients = Gradients(parameters);
    std::vector<torch::Tensor> exp_avg = Select(exp_avg_, active);
    std::vector<torch::Tensor> exp_avg_sq = Select(exp_avg_sq_, active);
    std::vector<torch::Tensor> steps = Select(steps_, active);
    at::_foreach_add_(steps, 1);
    const auto update = [&](const auto& rate) {
      const auto run = [&](auto kernel) {
        kernel(parameters, gradients, exp_avg, exp_avg_sq,
               /*max_exp_avg_sqs=*/std::vector<torch::Tensor>(), steps, rate,
               /*beta1=*/0.9, /*beta2=*/0.999, config_.weight_decay,
               /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false,
               /*grad_scale=*/std::optional<torch::Tensor>(), found_inf);
      };
      if (config_.name == "adamw") {
        run([](auto&&... args) { at::_fused_adamw_(args...); });
      } else {
        run([](auto&&... args) { at::_fused_adam_(args...); });
      }
    };
    rate_.defined() ? update(rate_) : update(learning_rate);
    // The kernel skips all but the count.
    if (found_inf.has_value())
      at::_foreach_add_(steps, *found_inf, /*alpha=*/-1);
  }

  NamedTensors Moments() const override {
    NamedTensors state = NamedState("exp_avg", exp_avg_);
    absl::c_move(NamedState("exp_avg_sq", exp_avg_sq_),
                 std::back_inserter(state));
    absl::c_move(NamedState("step", steps_), std::back_inserter(state));
    return state;
  }

 private:
  std::vector<torch::Tensor> exp_avg_;
  std::vector<torch::Tensor> exp_avg_sq_;
  std::vector<torch::Tensor> steps_;
};

class Sgd : public Optimizer {
 public:
  Sgd(const NamedTensors& owned, const OptimizerConfig& config)
      : Optimizer(owned, config) {
    if (config_.momentum != 0) momentum_buffers_ = ZerosLike(parameters_);
  }

  void Update(const std::vector<size_t>& active, double learning_rate,
              const std::optional<torch::Tensor>& found_inf) override {
    std::vector<torch::Tensor> parameters = Select(parameters_, active);
    std::vector<torch::Tensor> gradients = Gradients(parameters);
    std::vector<torch::Tensor> buffers;
    if (config_.momentum != 0) buffers = Select(momentum_buffers_, active);
    // A buffer that starts at zero gives the first step's `buffer = gradient`
    // by itself.
    const auto update = [&](const auto& rate) {
      at::_fused_sgd_(parameters, gradients, buffers, config_.weight_decay,
                      config_.momentum, rate,
                      /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                      /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
    };
    rate_.defined() ? update(rate_) : update(learning_rate);
  }

  NamedTensors Moments() const override {
    return NamedState("momentum", momentum_buffers_);
  }

 private:
  std::vector<torch::Tensor> momentum_buffers_;  // empty without momentum
};

}  // namespace

double LearningRate::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (!cosine) return peak;
  // The peak is at the last step of the warm-up, or at the first of all.
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

std::vector<std::pair<std::string, torch::Tensor>> GradScaler::State() const {
  return {{"grad_scaler.scale", scale_},
          {"grad_scaler.growth_tracker", growth_tracker_}};
}

double GradScaler::scale() const { return scale_.item<double>(); }

int64_t GradScaler::skipped_steps() const {
  return static_cast<int64_t>(skipped_.item<double>());
}

Optimizer::Optimizer(const NamedTensors& owned, const OptimizerConfig& config)
    : config_(config) {
  for (const auto& [name, parameter] : owned) {
    names_.push_back(name);
    parameters_.push_back(parameter);
  }
  counted_elsewhere_.resize(parameters_.size());
}

void Optimizer::ZeroGrad() {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void Optimizer::ShareNorm(std::function<void(torch::Tensor&)> add_up,
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

NamedTensors Optimizer::State() const {
  NamedTensors state = Moments();
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
  // A stage without parameters takes part in the sum too.
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
  const torch::Tensor norm = GradNorm(active);
  const torch::Tensor scale =
      (config_.clip_grad_norm / (norm + 1e-6)).clamp_max(1.0);
  for (const std::vector<size_t>& same_device : ByDevice(active)) {
    std::vector<torch::Tensor> gradients =
        Gradients(Select(parameters_, same_device));
    at::_foreach_mul_(gradients, scale.to(gradients[0].device()));
  }
}

NamedTensors Optimizer::NamedState(
    const std::string& prefix,
    const std::vector<torch::Tensor>& tensors) const {
  NamedTensors named;
  for (size_t i = 0; i < tensors.size(); ++i) {
    named.emplace_back(absl::StrCat(prefix, ".", names_[i]), tensors[i]);
  }
  return named;
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
  if (config.name == "adam" || config.name == "adamw")
    return std::make_unique<Adam>(owned, config);
  if (config.name == "sgd") return std::make_unique<Sgd>(owned, config);
  return absl::InvalidArgumentError(
      absl::StrCat("--optimizer=", config.name,
                   ": no such optimizer; known: adam, adamw, sgd"));
}

}  // namespace rankwise
