#include "parallel/replicated/replicated_model.h"

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <barrier>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace rankwise {
namespace {

// A convolution, whose weights may have another memory order, optional batch
// norm, and a linear layer: [B, 2, 4, 4] to [B, 3].
struct Net : torch::nn::Module {
  explicit Net(bool normalizes) {
    conv = register_module("conv", torch::nn::Conv2d(2, 5, 3));
    if (normalizes) norm = register_module("norm", torch::nn::BatchNorm2d(5));
    linear = register_module("linear", torch::nn::Linear(20, 3));
    torch::Tensor& weight = conv->weight;
    weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  torch::Tensor Forward(const torch::Tensor& x) {
    torch::Tensor y = conv->forward(x);
    if (!norm.is_empty()) y = norm->forward(y);
    return linear->forward(y.relu().flatten(1));
  }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
  torch::nn::Linear linear = nullptr;
};

// Nets with different weights, and their engine.
struct Replicas {
  Replicas(size_t count, bool persistent_copies, bool normalizes = false) {
    for (size_t i = 0; i < count; ++i) {
      at::manual_seed(i);
      nets.push_back(std::make_shared<Net>(normalizes));
    }
    engine = std::make_unique<ReplicatedModel>(
        std::vector<std::shared_ptr<torch::nn::Module>>(nets.begin(),
                                                        nets.end()),
        ReplicatedConfig{std::vector<c10::Device>(count, c10::kCPU),
                         persistent_copies});
  }

  // Runs a step up to the model's gradients. Returns the loss.
  torch::Tensor Step(const torch::Tensor& input, const torch::Tensor& target) {
    const std::vector<at::Tensor> parts = engine->Scatter(input);
    engine->Replicate(parts.size());
    const std::vector<at::Tensor> outputs = engine->Forward(
        parts.size(),
        [&](size_t replica) { return nets[replica]->Forward(parts[replica]); });
    const at::Tensor gathered = engine->Gather(outputs);
    const at::Tensor loss = at::mse_loss(gathered, target);
    loss.backward();
    engine->Backward(outputs,
                     engine->ScatterGradient(gathered.grad(), outputs));
    engine->Reduce(parts.size());
    return loss.detach();
  }

  std::vector<std::shared_ptr<Net>> nets;
  std::unique_ptr<ReplicatedModel> engine;
};

class ReplicatedModelTest
    : public ::testing::TestWithParam<std::tuple<size_t, bool>> {
 protected:
  size_t count() const { return std::get<0>(GetParam()); }
  bool persistent_copies() const { return std::get<1>(GetParam()); }
};

TEST_P(ReplicatedModelTest, StepsAreThoseOfTheWholeBatch) {
  Replicas replicas(count(), persistent_copies());
  at::manual_seed(0);
  Net whole(/*normalizes=*/false);
  for (int64_t examples : {8, 5, 1}) {  // 5 and 1: fewer parts than replicas
    SCOPED_TRACE(examples);
    const torch::Tensor input = at::randn({examples, 2, 4, 4});
    const torch::Tensor target = at::randn({examples, 3});
    const torch::Tensor loss = replicas.Step(input, target);
    const torch::Tensor expected = at::mse_loss(whole.Forward(input), target);
    EXPECT_TRUE(at::allclose(loss, expected, 1e-6));
    expected.backward();
    const torch::NoGradGuard no_grad;
    for (size_t p = 0; p < whole.parameters().size(); ++p) {
      torch::Tensor ours = replicas.nets[0]->parameters()[p];
      torch::Tensor theirs = whole.parameters()[p];
      EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-5, 1e-7)) << p;
      ours.sub_(ours.grad(), 0.1);  // the copies must see this update
      theirs.sub_(theirs.grad(), 0.1);
      ours.mutable_grad().reset();
      theirs.mutable_grad().reset();
    }
  }
}

TEST_P(ReplicatedModelTest, GradientsAddUpOverMicroBatches) {
  Replicas replicas(count(), persistent_copies()),
      once(count(), persistent_copies());
  const torch::Tensor input = at::randn({8, 2, 4, 4});
  const torch::Tensor target = at::randn({8, 3});
  replicas.Step(input, target);
  replicas.Step(input, target);
  once.Step(input, target);
  for (size_t p = 0; p < 4; ++p) {
    EXPECT_TRUE(at::allclose(replicas.nets[0]->parameters()[p].grad(),
                             2 * once.nets[0]->parameters()[p].grad(), 1e-5,
                             1e-7));
  }
  for (size_t i = 1; i < count(); ++i) {
    for (const torch::Tensor& parameter : replicas.nets[i]->parameters())
      EXPECT_FALSE(parameter.grad().defined());
  }
}

// As in PyTorch, only the first replica's buffers persist.
TEST_P(ReplicatedModelTest, BuffersAreThoseOfTheFirstReplica) {
  Replicas replicas(count(), persistent_copies(), /*normalizes=*/true);
  at::manual_seed(0);
  Net first(/*normalizes=*/true);
  const torch::Tensor input = at::randn({8, 2, 4, 4});
  for (int step = 0; step < 2; ++step) {
    replicas.Step(input, at::randn({8, 3}));
    first.Forward(input.chunk(static_cast<int64_t>(count()))[0]);
    for (const char* name : {"norm.running_mean", "norm.running_var"}) {
      const torch::Tensor expected = first.named_buffers()[name];
      EXPECT_TRUE(
          at::allclose(replicas.nets[0]->named_buffers()[name], expected));
    }
  }
  replicas.nets[0]->eval();
  replicas.engine->Replicate(count());
  for (const auto& net : replicas.nets) {
    EXPECT_FALSE(net->is_training());
    EXPECT_TRUE(net->norm->running_mean.equal(first.norm->running_mean));
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, ReplicatedModelTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Bool()));

TEST(ReplicatedModel, CopiesThatStayShareTheParameters) {
  const auto data_of = [](const Replicas& replicas, size_t i) {
    return replicas.nets[i]->linear->weight.data_ptr();
  };
  Replicas kept(2, /*persistent_copies=*/true);
  EXPECT_EQ(data_of(kept, 1), data_of(kept, 0));
  Replicas anew(2, /*persistent_copies=*/false);
  anew.engine->Replicate(2);
  EXPECT_NE(data_of(anew, 1), data_of(anew, 0));
  EXPECT_TRUE(
      anew.nets[1]->conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(ReplicatedModel, ScalarsAreGatheredAsOneEach) {
  Replicas replicas(2, /*persistent_copies=*/true);
  const std::vector<at::Tensor> parts =
      replicas.engine->Scatter(at::randn({3, 2, 4, 4}));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].size(0), 2);
  const auto outputs = replicas.engine->Forward(
      2, [&](size_t i) { return replicas.nets[i]->Forward(parts[i]).sum(); });
  const at::Tensor gathered = replicas.engine->Gather(outputs);
  EXPECT_EQ(gathered.sizes(), at::IntArrayRef({2}));
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(replicas.engine->Gather(outputs).requires_grad());
}

TEST(ReplicatedModel, ReplicasRunAtTheSameTimeInTheCallersGradientMode) {
  Replicas replicas(3, /*persistent_copies=*/true);
  std::barrier meet(3);  // all threads must reach it
  std::vector<std::thread::id> threads(3);
  std::vector<int> enabled(3, -1);
  const torch::NoGradGuard no_grad;
  replicas.engine->Forward(3, [&](size_t i) {
    threads[i] = std::this_thread::get_id();
    enabled[i] = at::GradMode::is_enabled();
    meet.arrive_and_wait();
    return at::randn({1});
  });
  EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), 3u);
  EXPECT_EQ(enabled, (std::vector<int>{0, 0, 0}));
}

TEST(ReplicatedModel, AReplicasExceptionComesThrough) {
  Replicas replicas(2, /*persistent_copies=*/false);
  EXPECT_THROW(replicas.engine->Forward(2,
                                        [](size_t i) -> at::Tensor {
                                          if (i == 1)
                                            throw std::runtime_error("no");
                                          return at::randn({1});
                                        }),
               std::runtime_error);
  EXPECT_TRUE(replicas.Step(at::randn({4, 2, 4, 4}), at::randn({4, 3}))
                  .isfinite()
                  .item<bool>());
}

TEST(ReplicatedModel, RefusesCopiesOfAnotherModel) {
  const std::vector<std::shared_ptr<torch::nn::Module>> different = {
      std::make_shared<Net>(false), std::make_shared<Net>(true)};
  EXPECT_ANY_THROW(ReplicatedModel(different, {{c10::kCPU, c10::kCPU}}));
  EXPECT_ANY_THROW(ReplicatedModel({different[0]}, {{c10::kCPU, c10::kCPU}}));
}

}  // namespace
}  // namespace rankwise
