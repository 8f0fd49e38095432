#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "samplers/datasets/dataset.h"
#include "trainers/models/catalog.h"

namespace rankwise {
namespace {

ModelConfig Small() {
  ModelConfig config;
  config.name = "gpt";
  config.depth = 2;
  config.width = 64;
  config.sequence_length = 24;
  return config;
}

ModelConfig Sized(const std::string& size) {
  ModelConfig config;
  config.name = "gpt";
  config.size = size;
  return config;
}

std::shared_ptr<Model> Build(const ModelConfig& config) {
  at::manual_seed(3);
  return std::make_shared<Model>(*GptSpec(config));
}

torch::Tensor SomeTokens(int64_t examples, int64_t length) {
  return at::randint(0, 256, {examples, length}, at::kLong);
}

TEST(GptTest, Gpt2HasThePublishedSize) {
  const ModelSpec spec = *GptSpec(Sized("gpt2"));
  EXPECT_EQ(spec.parameters(), 124439808);
  EXPECT_EQ(spec.num_classes, 50257);
  EXPECT_EQ(spec.example_shape, std::vector<int64_t>{1024});
  EXPECT_EQ(spec.layers.size(), 12u + 3u);
}

TEST(GptTest, SizesGrow) {
  int64_t before = 800'000;
  for (const char* size : {"nano", "micro", "mini", "small", "gpt2"}) {
    const int64_t parameters = GptSpec(Sized(size))->parameters();
    EXPECT_GT(parameters, before) << size;
    before = parameters;
  }
  EXPECT_EQ(GptSpec(Sized(""))->parameters(),
            GptSpec(Sized("nano"))->parameters());
}

// Two FLOPs per token and matrix weight, and in every block two products over
// all pairs of tokens, each over all features.
TEST(GptTest, FlopsAreThoseOfTheMatricesAndOfAttention) {
  const ModelSpec spec = *GptSpec(Small());
  const auto model = Build(Small());
  const double tokens = 24, features = 64, blocks = 2;
  double expected = blocks * 2 * 2 * tokens * tokens * features;
  for (const auto& entry : model->named_parameters()) {
    const bool looked_up = entry.key() == "embedding.position.weight";
    if (entry.value().dim() == 2 && !looked_up)  // the token's is the head
      expected += 2 * tokens * static_cast<double>(entry.value().numel());
  }
  EXPECT_DOUBLE_EQ(spec.flops(), expected);
}

TEST(GptTest, ATokenDoesNotSeeThoseAfterIt) {
  const auto model = Build(Small());
  const torch::Tensor tokens = SomeTokens(2, 24);
  torch::Tensor changed = tokens.clone();
  changed.select(1, 20).add_(1).remainder_(256);
  const torch::Tensor before = model->Forward(tokens);
  const torch::Tensor after = model->Forward(changed);
  EXPECT_TRUE(before.slice(1, 0, 20).allclose(after.slice(1, 0, 20), 0, 1e-6));
  EXPECT_FALSE(before.select(1, 20).allclose(after.select(1, 20), 0, 1e-4));
  EXPECT_FALSE(before.select(1, 23).allclose(after.select(1, 23), 0, 1e-6));
}

TEST(GptTest, ATiedHeadIsOneParameterAndFollowsItsOwner) {
  const auto model = Build(Small());
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters.find("head.weight"), nullptr);
  EXPECT_TRUE(model->copies().empty());
  const torch::Tensor tokens = SomeTokens(1, 24);
  model->to(torch::kDouble);
  EXPECT_EQ(model->Forward(tokens).scalar_type(), at::kDouble);
  {
    at::NoGradGuard no_grad;
    parameters["embedding.token.weight"].zero_();
  }
  EXPECT_EQ(model->Forward(tokens).abs().max().item<double>(), 0);
  ModelConfig untied = Small();
  untied.tied_head = false;
  EXPECT_NE(Build(untied)->named_parameters().find("head.weight"), nullptr);
}

TEST(GptTest, AHeadWithoutItsOwnerHasACopyThatIsItsOwn) {
  const ModelSpec spec = *GptSpec(Small());
  const size_t layers = spec.layers.size();
  at::manual_seed(3);
  const Model last(spec, {{layers - 1, layers}});
  ASSERT_EQ(last.copies().size(), 1u);
  EXPECT_EQ(last.copies()[0].owner, 0u);
  EXPECT_EQ(last.copies()[0].user, layers - 1);
  const auto held = last.named_parameters();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].key(), "head.weight");
  EXPECT_TRUE(held[0].value().requires_grad());
  EXPECT_TRUE(held[0].value().equal(
      Build(Small())->named_parameters()["embedding.token.weight"]));
}

TEST(GptTest, InitialWeightsAreGpt2s) {
  ModelConfig config = Small();
  config.depth = 8;
  config.width = 128;
  const auto model = Build(config);
  for (const auto& entry : model->named_parameters()) {
    if (entry.value().dim() != 2) continue;
    const bool residual = entry.key().find("projection") != std::string::npos ||
                          entry.key().find("contract") != std::string::npos;
    const double expected = residual ? 0.02 / std::sqrt(2.0 * 8) : 0.02;
    EXPECT_NEAR(entry.value().std().item<double>(), expected, 0.04 * expected)
        << entry.key();
  }
}

TEST(GptTest, DropoutMasksDependOnTheSeedAndTheLayerOnly) {
  ModelConfig config = Small();
  config.dropout = 0.2;
  const auto model = Build(config);
  const size_t layers = model->num_layers();
  const torch::Tensor tokens = SomeTokens(2, 24);
  model->set_dropout_seed(1);
  const torch::Tensor first = model->Forward(tokens);
  model->set_dropout_seed(2);
  EXPECT_FALSE(model->Forward(tokens).equal(first));

  // The same micro-batch, with another one run after every layer.
  torch::Tensor x = tokens, other = SomeTokens(2, 24);
  for (size_t i = 0; i < layers; ++i) {
    model->set_dropout_seed(1);
    x = model->Forward(x, {i, i + 1});
    model->set_dropout_seed(2);
    other = model->Forward(other, {i, i + 1});
  }
  EXPECT_TRUE(x.equal(first));
}

TEST(GptTest, DropoutDropsItsShareInTrainingOnly) {
  ModelConfig config = Small();
  config.dropout = 0.25;
  const auto model = Build(config);
  const torch::Tensor tokens = SomeTokens(16, 24);
  const double dropped = model->Forward(tokens, {0, 1})
                             .eq(0)
                             .to(at::kDouble)
                             .mean()
                             .item<double>();
  EXPECT_NEAR(dropped, 0.25, 0.02);
  model->eval();
  EXPECT_TRUE(model->Forward(tokens).equal(Build(Small())->Forward(tokens)));
}

TEST(GptTest, EveryLayerWithDropoutSeedsTheGenerator) {
  ModelConfig config = Small();
  config.dropout = 0.2;
  const auto model = Build(config);
  const auto seed = [] {
    return at::globalContext().defaultGenerator(at::kCPU).current_seed();
  };
  model->set_dropout_seed(5);
  const torch::Tensor x = model->Forward(SomeTokens(1, 24), {0, 1});
  EXPECT_EQ(seed(), LayerSeed(5, 0));
  model->Forward(x, {1, 3});
  EXPECT_EQ(seed(), LayerSeed(5, 2));
  model->Forward(x, {3, 5});  // norm and head draw nothing
  EXPECT_EQ(seed(), LayerSeed(5, 2));
}

TEST(DropoutTest, LayersHaveSeedsOfTheirOwn) {
  EXPECT_NE(static_cast<uint32_t>(LayerSeed(1, 2)),
            static_cast<uint32_t>(LayerSeed(2, 1)));
  EXPECT_NE(static_cast<uint32_t>(LayerSeed(1, 1)),
            static_cast<uint32_t>(LayerSeed(1, 2)));
  EXPECT_EQ(LayerSeed(9, 4), LayerSeed(9, 4));
}

TEST(GptTest, LearnsTokens) {
  at::set_num_threads(1);  // small tensors: more threads would only wait
  const auto model = Build(Small());
  const auto tokens = *OpenDataset(
      {.name = "tokens", .train_size = 1000, .seed = 0, .sequence_length = 24},
      Split::kTrain);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 40; ++step) {
    std::vector<int64_t> indices(16);
    for (int64_t i = 0; i < 16; ++i)
      indices[static_cast<size_t>(i)] = 16 * step + i;
    const Batch batch = tokens->Gather(indices);
    const torch::Tensor loss =
        Loss(LossKind::kCrossEntropy, model->Forward(batch.data), batch.target);
    last = loss.item<double>();
    if (step == 0) first = last;
    loss.backward();
    // Steps of equal size, like Adam's first ones.
    at::NoGradGuard no_grad;
    for (torch::Tensor& parameter : model->parameters()) {
      parameter.sub_(parameter.grad().sign(), 0.003);
      parameter.mutable_grad().reset();
    }
  }
  EXPECT_NEAR(first, std::log(256.0), 0.1);
  EXPECT_LT(last, first - 0.5);
}

}  // namespace
}  // namespace rankwise
