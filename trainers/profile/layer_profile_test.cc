#include "trainers/profile/layer_profile.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace rankwise {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ProfileLayers, TimesEveryLayerAndLeavesTheModelAsItWas) {
  const ModelSpec spec = *MakeModelSpec({.name = "mlp", .width = 16});
  const auto model = std::make_shared<Model>(spec);
  const Objective objective(model, spec.loss, Precision::kFp32, torch::kCPU);
  const std::vector<torch::Tensor> parameters = model->parameters();
  const torch::Tensor before = parameters[0].detach().clone();
  const Batch batch = {at::randn({4, 3, 32, 32}),
                       at::randint(10, {4}, at::kLong)};

  const std::vector<LayerRecord> layers = ProfileLayers(
      {spec, *model, objective}, batch, {.warmup_passes = 1, .passes = 5});

  ASSERT_EQ(layers.size(), 3u);
  for (const LayerRecord& layer : layers) {
    EXPECT_EQ(layer.examples, 4);
    EXPECT_EQ(layer.forward_seconds.size(), 5u);
    EXPECT_EQ(layer.backward_seconds.size(), 5u);
    for (const double seconds : layer.forward_seconds) EXPECT_GT(seconds, 0);
    for (const double seconds : layer.backward_seconds) EXPECT_GT(seconds, 0);
  }
  EXPECT_EQ(layers[0].name, "fc1");
  EXPECT_EQ(layers[0].forward_flops, 4 * 2 * 3072 * 16);
  EXPECT_EQ(layers[0].backward_flops, layers[0].forward_flops);
  EXPECT_EQ(layers[1].backward_flops, 2 * layers[1].forward_flops);
  // Input, weights and output; backward the same plus the gradients of the
  // input and the weights.
  const double weights = 4 * (16 * 16 + 16), values = 4 * 4 * 16;
  EXPECT_EQ(layers[1].forward_bytes, values + weights + values);
  EXPECT_EQ(layers[1].backward_bytes, 3 * values + 2 * weights);
  EXPECT_TRUE(before.equal(parameters[0]));
  // Runs its layers directly again.
  EXPECT_EQ(model->Forward(batch.data).size(1), 10);
}

TEST(ProfileLayers, TokensHaveNoGradient) {
  const ModelSpec spec =
      *MakeModelSpec({.name = "gpt", .depth = 1, .width = 32});
  const auto model = std::make_shared<Model>(spec);
  const Objective objective(model, spec.loss, Precision::kFp32, torch::kCPU);
  const torch::Tensor tokens =
      at::randint(256, {2, spec.example_shape[0]}, at::kLong);
  const std::vector<LayerRecord> layers =
      ProfileLayers({spec, *model, objective}, {tokens, tokens},
                    {.warmup_passes = 0, .passes = 1});
  ASSERT_EQ(layers.size(), 4u);
  for (const LayerRecord& layer : layers)
    EXPECT_GT(layer.backward_seconds[0], 0) << layer.name;
  for (const torch::Tensor& parameter : model->parameters())
    EXPECT_FALSE(parameter.grad().defined());
}

TEST(RooflineOf, TheSlowerOfComputingAndMemoryBounds) {
  const DevicePeak peak = {1e9, 1e8};
  const LayerRoofline compute = RooflineOf({3, 2, 1}, 1e9, 1e7, peak);
  EXPECT_EQ(compute.bound, "compute");
  EXPECT_EQ(compute.seconds, 2);
  EXPECT_EQ(compute.limit_seconds, 1);
  EXPECT_EQ(compute.flops_per_second, 5e8);
  const LayerRoofline memory = RooflineOf({2}, 1e6, 1e8, peak);
  EXPECT_EQ(memory.bound, "memory");
  EXPECT_EQ(memory.limit_seconds, 1);
  EXPECT_EQ(RooflineOf({2}, 1e6, 1e8, {}).bound, "");
}

TEST(LayerTable, HasARowPerDirectionAndTheSum) {
  LayerRecord layer;
  layer.name = "conv1";
  layer.forward_flops = layer.backward_flops = 1e9;
  layer.forward_seconds = {2};
  layer.backward_seconds = {2};
  const std::string table = LayerTable({layer}, {1e9, 1e8});
  EXPECT_THAT(table, HasSubstr("conv1        forward   2000.000       0.5"));
  EXPECT_THAT(table, HasSubstr("conv1        backward  2000.000"));
  EXPECT_THAT(table, HasSubstr("compute 1000.000   50.0 %"));
  EXPECT_THAT(table,
              HasSubstr("all layers: 4000.000 ms, roofline limit 2000.000 "
                        "ms: 50.0 % of the limit"));
}

TEST(LayerTable, NoShareOfAMeasuredLimitIsAbove100Percent) {
  LayerRecord layer;
  layer.forward_flops = layer.backward_flops = 1e9;
  layer.forward_seconds = layer.backward_seconds = {0.5};
  const std::string table = LayerTable({layer}, {1e9, 1e8});
  EXPECT_THAT(table, HasSubstr("compute 1000.000  > 100 %\n"));
  EXPECT_THAT(table, HasSubstr("ms: > 100 % of the limit"));
  EXPECT_THAT(table, Not(HasSubstr("200.0 %")));
}

}  // namespace
}  // namespace rankwise
