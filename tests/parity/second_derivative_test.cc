// Tests that autograd functions of parallel/ and trainers/ reject a backward
// with create_graph by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/context/context_parallel.h"
#include "parallel/context/exchange.h"
#include "parallel/context/ring.h"
#include "parallel/ddp/sync_batch_norm.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/regions.h"
#include "parallel/tensor/vocabulary.h"
#include "torch/csrc/autograd/autograd.h"
#include "trainers/layers/attention.h"
#include "trainers/layers/conv_relu_max_pool.h"
#include "trainers/layers/gelu.h"
#include "trainers/layers/linear.h"
#include "trainers/layers/relu_max_pool.h"
#include "trainers/layers/rms_norm.h"
#include "trainers/layers/rotary.h"
#include "trainers/layers/swiglu.h"
#include "trainers/loop/recompute.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Case {
  std::string name;  // as in the error
  std::vector<int64_t> shape;
  // Differentiable; collective over two ranks, if it communicates.
  std::function<Tensor(const Tensor& x, const Group& ranks)> function;
  // Whether this CPU runs the function rather than ATen's.
  bool runs_here = true;
};

std::vector<Case> Cases() {
  const auto ones = [](std::vector<int64_t> shape) { return at::ones(shape); };
  return {
      {"SyncBatchNorm",
       {4, 2},
       [](const Tensor& x, const Group& ranks) {
         return SyncBatchNormForward(x, {}, {}, 1e-5, ranks).output;
       }},
      {"a region of tensor parallelism",
       {2},
       [](const Tensor& x, const Group& ranks) {
         return ReduceFromRanks(x, {.group = ranks});
       }},
      {"ColumnParallelLinear",
       {1, 2, 3},
       [=](const Tensor& x, const Group& ranks) {
         return ColumnParallelLinear(x, ones({2, 3}), {}, /*tokens=*/2,
                                     {.group = ranks});
       }},
      {"RowParallelLinear",
       {1, 2, 3},
       [=](const Tensor& x, const Group& ranks) {
         return RowParallelLinear(x, ones({2, 3}), {}, {.group = ranks});
       }},
      {"VocabularyParallelCrossEntropy",
       {2, 3},
       [](const Tensor& x, const Group& ranks) {
         return VocabularyParallelCrossEntropy(
             x, at::zeros({2}, at::kLong), /*vocabulary=*/6, {.group = ranks});
       }},
      {"RingAttention",
       {1, 1, 2, 4},
       [](const Tensor& x, const Group& ranks) {
         return RingAttention(x, x, x, {.tokens = 4}, {.group = ranks});
       }},
      {"AllToAll",
       {2},
       [](const Tensor& x, const Group& ranks) {
         return AllToAll(x, {1, 1}, {1, 1}, {.group = ranks});
       }},
      {"SumOverContext",
       {2},
       [](const Tensor& x, const Group& ranks) {
         return SumOverContext(x, {.group = ranks});
       }},
      {"Linear",
       {2, 3},
       [=](const Tensor& x, const Group&) {
         return Linear(x, ones({4, 3}), ones({4}));
       },
       at::hasMKLDNN()},
      {"ConvReluMaxPool",
       {32, 3, 3, 3},  // weight
       [=](const Tensor& weight, const Group&) {
         return ConvReluMaxPool(ones({1, 3, 32, 32}), weight, ones({32}));
       }},
      {"TanhGelu",
       {4},
       [](const Tensor& x, const Group&) { return TanhGelu(x); }},
      {"SelfAttention",
       {1, 4, 3 * 8},
       [](const Tensor& x, const Group&) {
         return SelfAttention(x, /*heads=*/1, /*kv_heads=*/1, /*causal=*/true);
       },
       HasSelfAttention(at::ones({1, 4, 3 * 8}), /*heads=*/1,
                        /*kv_heads=*/1)},
      {"RmsNorm",
       {2, 4},
       [=](const Tensor& x, const Group&) {
         return RmsNorm(x, ones({4}), /*epsilon=*/1e-5);
       }},
      {"SwiGlu",
       {2, 4},
       [](const Tensor& x, const Group&) { return SwiGlu(x); }},
      {"Rotary",
       {1, 2, 3 * 4},
       [=](const Tensor& x, const Group&) {
         return Rotary(x, /*heads=*/1, /*kv_heads=*/1, ones({2, 2}),
                       ones({2, 2}));
       }},
      {"ReluMaxPool",
       {1, 2, 4, 4},
       [](const Tensor& x, const Group&) { return ReluMaxPool(x); }},
      {"Recomputed",
       {2},
       [](const Tensor& x, const Group&) {
         return Recomputed([](const Tensor& in) { return in.exp(); }, x,
                           Precision::kFp32, /*buffers=*/{});
       }},
  };
}

class SecondDerivativeTest : public testing::TestWithParam<Case> {};

TEST_P(SecondDerivativeTest, IsRefused) {
  const Case& one = GetParam();
  if (!one.runs_here) GTEST_SKIP() << "this CPU runs ATen's function";
  OnRanks(2, [&one](Communicator& comm) {
    const Tensor x = at::ones(one.shape).requires_grad_();
    const auto differentiate = [&](bool create_graph) {
      const Tensor y = one.function(x, comm.world()).sum();
      return torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/std::nullopt,
                                   create_graph)[0];
    };
    EXPECT_EQ(differentiate(/*create_graph=*/false).sizes(), x.sizes());
    EXPECT_THAT(ErrorOf([&] { differentiate(/*create_graph=*/true); }),
                HasSubstr(one.name + " has no second derivative; call backward "
                                     "without create_graph"));
  });
}

INSTANTIATE_TEST_SUITE_P(Functions, SecondDerivativeTest,
                         testing::ValuesIn(Cases()), [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& letter : name) {
                             if (!std::isalnum(letter)) letter = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace rankwise
