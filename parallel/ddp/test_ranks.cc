#include "parallel/ddp/test_ranks.h"

#include <algorithm>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Functions.h"
#include "gtest/gtest.h"
#include "parallel/ddp/model_state.h"

namespace rankwise {

TestNet::TestNet()
    : first(register_module("first", torch::nn::Linear(6, 16))),
      second(register_module("second", torch::nn::Linear(16, 8))),
      extra(register_module("extra", torch::nn::Linear(16, 8))),
      last(register_module("last", torch::nn::Linear(8, 3))),
      scale(register_buffer("scale", at::ones({1}))),
      steps(register_buffer("steps", at::zeros({}, torch::kLong))) {
  Fill(*this, 1);
}

torch::Tensor TestNet::forward(const torch::Tensor& x, bool use_extra) {
  const torch::Tensor hidden = at::relu(first(x));
  torch::Tensor mixed = second(hidden);
  if (use_extra) mixed = mixed + extra(hidden);
  return last(at::relu(mixed)) * scale;
}

void Fill(torch::nn::Module& module, uint64_t seed) {
  at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (const NamedTensor& item : ModelParameters(module)) {
    item.tensor.copy_(at::randn(item.tensor.sizes(), generator) * 0.3);
  }
}

TestBatch BatchOf(int step, int rank, int rows) {
  at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(1000 * step + rank + 7);
  return {at::randn({rows, 6}, generator), at::randn({rows, 3}, generator)};
}

TestBatch GlobalBatch(int step, int world_size, int rows) {
  std::vector<torch::Tensor> x, y;
  for (int rank = 0; rank < world_size; ++rank) {
    const TestBatch batch = BatchOf(step, rank, rows);
    x.push_back(batch.x);
    y.push_back(batch.y);
  }
  return {at::cat(x), at::cat(y)};
}

torch::Tensor LossOf(TestNet& net, const TestBatch& batch, bool use_extra) {
  return (net.forward(batch.x, use_extra) - batch.y).square().mean();
}

void Backward(TestNet& net, DataParallelEngine& engine, const TestBatch& batch,
              bool use_extra, double weight) {
  engine.BeforeForward();
  torch::Tensor loss = LossOf(net, batch, use_extra) * weight;
  engine.BeforeBackward({loss});
  loss.backward();
  engine.AfterBackward();
}

void ZeroGradients(torch::nn::Module& module) {
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.grad().defined()) parameter.grad().zero_();
  }
}

void Descend(torch::nn::Module& module, double rate) {
  at::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad() * rate);
  }
}

std::vector<torch::Tensor> Gradients(const torch::nn::Module& module) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : module.parameters()) {
    const torch::Tensor& gradient = parameter.grad();
    gradients.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  return gradients;
}

std::vector<torch::Tensor> Values(const torch::nn::Module& module) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& parameter : module.parameters()) {
    values.push_back(parameter.detach().clone());
  }
  return values;
}

double Distance(const std::vector<torch::Tensor>& a,
                const std::vector<torch::Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double distance = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    distance = std::max(distance, (a[i] - b[i]).abs().max().item<double>());
  }
  return distance;
}

}  // namespace rankwise
