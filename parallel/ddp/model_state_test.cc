#include "parallel/ddp/model_state.h"

#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/embedding.h"

namespace rankwise {
namespace {

using testing::ElementsAre;

// Holds a tensor of another module.
struct Tied : torch::nn::Module {
  explicit Tied(const at::Tensor& shared) {
    register_parameter("weight", shared);
  }
};

struct Block : torch::nn::Module {
  Block() {
    register_module("norm", torch::nn::BatchNorm1d(3));
    register_parameter("gain", at::ones({3}));
  }
};

struct Net : torch::nn::Module {
  Net() {
    auto table = register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 4).sparse(true)));
    register_parameter("own", at::ones({1}));
    register_module("block", std::make_shared<Block>());
    register_module("twin", std::make_shared<Tied>(table->weight));
  }
};

std::vector<std::string> Names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& item : tensors) names.push_back(item.name);
  return names;
}

// Net is not held by a shared_ptr here: a plain object must do.
TEST(ModelStateTest, OwnTensorsComeBeforeChildrensAndSharedOnesOnce) {
  Net net;
  EXPECT_THAT(Names(ModelParameters(net)),
              ElementsAre("own", "table.weight", "block.gain",
                          "block.norm.weight", "block.norm.bias"));
  EXPECT_THAT(Names(ModelBuffers(net)),
              ElementsAre("block.norm.running_mean", "block.norm.running_var",
                          "block.norm.num_batches_tracked"));
}

TEST(ModelStateTest, KnowsWhichGradientsAreSparse) {
  Net net;
  for (const NamedTensor& item : ModelParameters(net)) {
    EXPECT_EQ(item.sparse_gradient, item.name == "table.weight") << item.name;
  }
}

TEST(ModelStateTest, GivesTheTensorsThemselvesNotCopies) {
  Net net;
  at::NoGradGuard no_grad;
  ModelParameters(net)[0].tensor.fill_(7);
  EXPECT_EQ(ModelParameters(net)[0].tensor.item<float>(), 7);
}

}  // namespace
}  // namespace rankwise
