#include "trainers/model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/batchnorm.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainers/linear.h"
#include "trainers/simple_cnn.h"

namespace rankwise {

const std::vector<ModelSpec>& AllModels() {
  static const auto* const kModels =
      new std::vector<ModelSpec>{SimpleCnnSpec(), LinearSpec()};
  return *kModels;
}

absl::StatusOr<const ModelSpec*> FindModel(absl::string_view name) {
  std::vector<std::string> known;
  for (const ModelSpec& spec : AllModels()) {
    if (spec.name == name) return &spec;
    known.push_back(spec.name);
  }
  return absl::NotFoundError(
      absl::StrCat("--model=", name,
                   ": no such model; known: ", absl::StrJoin(known, ", ")));
}

torch::Tensor Loss(LossKind kind, const torch::Tensor& output,
                   const torch::Tensor& target) {
  if (kind == LossKind::kCrossEntropy)
    return at::cross_entropy_loss(output, target);
  return at::mse_loss(output, target);
}

void ToChannelsLast(torch::nn::Module& model) {
  for (torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

int64_t CountParameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters())
    count += parameter.numel();
  return count;
}

bool HasBatchNorm(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    if (module->as<torch::nn::BatchNorm1d>() ||
        module->as<torch::nn::BatchNorm2d>() ||
        module->as<torch::nn::BatchNorm3d>()) {
      return true;
    }
  }
  return false;
}

}  // namespace rankwise
