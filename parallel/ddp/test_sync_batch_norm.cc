#include "parallel/ddp/test_sync_batch_norm.h"

#include <numeric>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/batch_norm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "parallel/ddp/sync_batch_norm.h"

namespace rankwise {
namespace {

constexpr double kEps = 1e-5;

// Inputs of the whole batch, the same on every rank.
struct Inputs {
  torch::Tensor x, g, weight, bias;
};

torch::Tensor Drawn(const std::vector<int64_t>& shape, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator);
}

Inputs InputsOf(const NormCase& c, torch::Device device) {
  std::vector<int64_t> shape = c.example;
  shape.insert(shape.begin(),
               std::accumulate(c.rows.begin(), c.rows.end(), int64_t{0}));
  const std::vector<int64_t> channels{c.example[0]};
  Inputs inputs;
  // Rounded to the case's type first, so that only the arithmetic is compared.
  inputs.x = (Drawn(shape, 1) * 2 + c.mean).to(c.type).to(device);
  inputs.g = Drawn(shape, 2).to(c.type).to(device);
  inputs.weight = (Drawn(channels, 3) + 1).to(device);
  inputs.bias = Drawn(channels, 4).to(device);
  return inputs;
}

// Returns the rows of `rank`.
torch::Tensor Rows(const NormCase& c, const torch::Tensor& whole, int rank) {
  const int64_t start =
      std::accumulate(c.rows.begin(), c.rows.begin() + rank, int64_t{0});
  return whole.narrow(0, start, c.rows[rank]);
}

torch::Tensor Leaf(const torch::Tensor& tensor) {
  return tensor.detach().clone().set_requires_grad(true);
}

torch::Tensor GradientOr0(const torch::Tensor& tensor) {
  return tensor.grad().defined() ? tensor.grad().to(torch::kFloat)
                                 : at::zeros({1}, tensor.device());
}

torch::Tensor Laid(const NormCase& c, const torch::Tensor& tensor) {
  if (!c.channels_last) return tensor;
  return tensor.contiguous(tensor.dim() == 5 ? at::MemoryFormat::ChannelsLast3d
                                             : at::MemoryFormat::ChannelsLast);
}

}  // namespace

std::vector<NormCase> NormCases(int world_size) {
  std::vector<int64_t> even(world_size, 3), uneven, some_empty(world_size, 2);
  for (int rank = 0; rank < world_size; ++rank) uneven.push_back(1 + 2 * rank);
  some_empty.front() = 0;
  if (world_size > 2) some_empty[2] = 0;
  std::vector<NormCase> cases{
      {.name = "matrix", .rows = even, .example = {5}},
      {.name = "sequence", .rows = even, .example = {3, 7}},
      {.name = "image", .rows = even, .example = {4, 5, 6}},
      {.name = "volume", .rows = even, .example = {3, 2, 4, 3}},
      {.name = "uneven", .rows = uneven, .example = {4, 3, 3}},
      {.name = "channels_last",
       .rows = uneven,
       .example = {4, 5, 6},
       .channels_last = true},
      {.name = "channels_last_3d",
       .rows = even,
       .example = {3, 2, 4, 3},
       .channels_last = true},
      {.name = "no_affine",
       .rows = even,
       .example = {4, 3, 3},
       .affine = false},
      {.name = "far_from_0", .rows = uneven, .example = {4, 5, 6}, .mean = 50},
      {.name = "bf16",
       .rows = uneven,
       .example = {4, 5, 6},
       .type = torch::kBFloat16},
      {.name = "fp16_channels_last",
       .rows = even,
       .example = {4, 5, 6},
       .channels_last = true,
       .type = torch::kHalf},
  };
  if (world_size == 1) return cases;
  cases.push_back(
      {.name = "some_empty", .rows = some_empty, .example = {4, 3, 3}});
  cases.push_back({.name = "some_empty_bf16",
                   .rows = some_empty,
                   .example = {4, 3, 3},
                   .type = torch::kBFloat16});
  cases.push_back({.name = "one_value_each",
                   .rows = std::vector<int64_t>(world_size, 1),
                   .example = {4}});
  return cases;
}

NormResult NormalizeWhole(const NormCase& c, int rank, torch::Device device) {
  const Inputs inputs = InputsOf(c, device);
  const torch::Tensor x = Leaf(inputs.x.to(torch::kFloat));
  const torch::Tensor weight = Leaf(inputs.weight), bias = Leaf(inputs.bias);
  NormResult result;
  // With momentum 1 they become the batch's statistics.
  result.mean = at::zeros(c.example[0], device);
  result.variance = at::ones(c.example[0], device);
  const torch::Tensor y = at::batch_norm(
      x, c.affine ? weight : torch::Tensor(), c.affine ? bias : torch::Tensor(),
      result.mean, result.variance,
      /*training=*/true, /*momentum=*/1, kEps, /*cudnn_enabled=*/false);
  (y * inputs.g.to(torch::kFloat)).sum().backward();
  result.y = Rows(c, y.detach(), rank);
  result.dx = Rows(c, x.grad(), rank);
  result.dweight = GradientOr0(weight);
  result.dbias = GradientOr0(bias);
  return result;
}

NormResult NormalizeShare(const NormCase& c, Communicator& comm) {
  const Inputs inputs = InputsOf(c, comm.device());
  const torch::Tensor x = Leaf(Laid(c, Rows(c, inputs.x, comm.rank())));
  const torch::Tensor weight = Leaf(inputs.weight), bias = Leaf(inputs.bias);
  const SyncedBatch batch = SyncBatchNormForward(
      x, c.affine ? weight : torch::Tensor(), c.affine ? bias : torch::Tensor(),
      kEps, comm.world());
  EXPECT_EQ(batch.output.scalar_type(), c.type);
  EXPECT_EQ(batch.output.strides(), x.strides());
  // Deliberately not in x's layout: gradients may arrive in any.
  batch.output.backward(Rows(c, inputs.g, comm.rank()));
  EXPECT_EQ(x.grad().scalar_type(), c.type);
  NormResult result{batch.output.detach().to(torch::kFloat),
                    x.grad().to(torch::kFloat),
                    GradientOr0(weight),
                    GradientOr0(bias),
                    batch.moments.mean,
                    batch.moments.unbiased_variance};
  EXPECT_TRUE(comm.AllReduce(result.dweight).ok());
  EXPECT_TRUE(comm.AllReduce(result.dbias).ok());
  return result;
}

void ExpectSame(const NormCase& c, const NormResult& got,
                const NormResult& want) {
  // Slightly more than half a unit in the last place.
  const double rounding = c.type == torch::kBFloat16 ? 0.005
                          : c.type == torch::kHalf   ? 0.001
                                                     : 1e-5;
  const auto expect = [&](const char* what, const torch::Tensor& a,
                          const torch::Tensor& b, double tolerance) {
    EXPECT_TRUE(at::allclose(a, b, tolerance, tolerance))
        << c.name << ": " << what << " differs by "
        << (a - b).abs().max().item<double>();
  };
  expect("y", got.y, want.y, rounding);
  expect("dx", got.dx, want.dx, rounding);
  expect("dweight", got.dweight, want.dweight, 1e-5);
  expect("dbias", got.dbias, want.dbias, 1e-5);
  expect("mean", got.mean, want.mean, 1e-5);
  expect("variance", got.variance, want.variance, 1e-5);
}

}  // namespace rankwise
