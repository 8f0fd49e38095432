#include "parallel/tensor/regions.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;  // by rank

struct Whole {
  std::vector<int64_t> shape;
  int64_t dim;  // along which the tensor is divided

  int64_t size() const { return shape[dim]; }
  Whole Of(int64_t other_size) const {
    Whole other = *this;
    other.shape[dim] = other_size;
    return other;
  }
  Tensors Draw(int ranks) const {
    return at::randn({ranks, shape[0], shape[1], shape[2]}, at::kDouble)
        .unbind();
  }
};

int64_t RoundedUp(const Whole& whole, int ranks) {
  return (whole.size() + ranks - 1) / ranks * ranks;
}

Tensors DrawParts(const Whole& whole, int ranks) {
  return whole.Of(RoundedUp(whole, ranks) / ranks).Draw(ranks);
}

Tensors Divide(const torch::Tensor& x, const Whole& whole, int ranks) {
  const Whole padding = whole.Of(RoundedUp(whole, ranks) - whole.size());
  return at::cat({x, at::zeros(padding.shape, at::kDouble)}, whole.dim)
      .chunk(ranks, whole.dim);
}

Tensors OnAll(const torch::Tensor& x, int ranks) { return Tensors(ranks, x); }

torch::Tensor Joined(const Tensors& parts, const Whole& whole) {
  return at::cat(parts, whole.dim).narrow(whole.dim, 0, whole.size());
}

torch::Tensor Sum(const Tensors& x) { return at::stack(x).sum(0); }

// A region's inputs and expected outputs, forward and backward.
struct Example {
  std::string name;
  std::function<torch::Tensor(const torch::Tensor&, const TensorParallel&)>
      region;
  Tensors x, y, dy, dx;
};

std::vector<Example> Examples(const Whole& whole, int ranks) {
  const int64_t dim = whole.dim, size = whole.size();
  const Tensors x = whole.Draw(ranks), dy = whole.Draw(ranks);
  const Tensors parts = DrawParts(whole, ranks);
  const Tensors dparts = DrawParts(whole, ranks);
  const auto on_all = [&](const torch::Tensor& t) { return OnAll(t, ranks); };
  const auto divide = [&](const torch::Tensor& t) {
    return Divide(t, whole, ranks);
  };
  return {
      {"ReduceFromRanks", ReduceFromRanks, x, on_all(Sum(x)), dy, dy},
      {"ScatterToRanks",
       [=](const torch::Tensor& t, const TensorParallel& tp) {
         return ScatterToRanks(t, dim, tp);
       },
       on_all(x[0]), divide(x[0]), dparts, on_all(Joined(dparts, whole))},
      {"GatherFromRanks",
       [=](const torch::Tensor& t, const TensorParallel& tp) {
         return GatherFromRanks(t, dim - t.dim(), size, tp);
       },
       parts, on_all(Joined(parts, whole)), on_all(dy[0]), divide(dy[0])},
      {"ReduceScatterFromRanks",
       [=](const torch::Tensor& t, const TensorParallel& tp) {
         return ReduceScatterFromRanks(t, dim, tp);
       },
       x, divide(Sum(x)), dparts, on_all(Joined(dparts, whole))},
  };
}

void ExpectEqual(const torch::Tensor& got, const torch::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-12);
}

TEST(RegionsTest, ChangeActivationsForwardAndGradientsBackward) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<Example> examples;
    // With 3 or 2 tokens, some of 4 ranks have no tokens.
    for (const Whole& whole :
         {Whole{{8, 3, 2}, 0}, Whole{{3, 1, 2}, 0}, Whole{{3, 4, 2}, 1},
          Whole{{1, 4, 2}, 1}, Whole{{2, 2, 3}, 1}, Whole{{2, 3, 5}, 2}}) {
      for (Example& example : Examples(whole, ranks))
        examples.push_back(std::move(example));
    }
    OnRanks(ranks, [&](Communicator& comm) {
      const TensorParallel tp{.group = comm.world()};
      for (const Example& example : examples) {
        SCOPED_TRACE(example.name);
        const torch::Tensor x = example.x[tp.place()].clone().requires_grad_();
        const torch::Tensor y = example.region(x, tp);
        EXPECT_EQ(y.is_same(x), ranks == 1);
        ExpectEqual(y, example.y[tp.place()]);
        y.backward(example.dy[tp.place()]);
        ExpectEqual(x.grad(), example.dx[tp.place()]);
      }
    });
  }
}

TEST(RegionsTest, APartIsPaddedAndHasNoGradient) {
  const torch::Tensor whole = at::full({2, 5}, 1.0).t().requires_grad_();
  const double sums[] = {4, 4, 2, 0};
  for (int place = 0; place < 4; ++place) {
    const TensorParallel tp{
        .group = Group("tp", {0, 1, 2, 3}, place, nullptr, nullptr)};
    const torch::Tensor part = PartOf(whole, -2, tp);
    EXPECT_EQ(part.sizes(), (std::vector<int64_t>{2, 2}));
    EXPECT_TRUE(part.is_contiguous());
    EXPECT_FALSE(part.requires_grad());
    EXPECT_EQ(part.sum().item<double>(), sums[place]);
  }
}

TEST(RegionsTest, RefuseASecondDerivative) {
  OnRanks(2, [](Communicator& comm) {
    const torch::Tensor x = at::full({2}, 1.0).requires_grad_();
    const torch::Tensor y = ReduceFromRanks(x, {.group = comm.world()}).sum();
    EXPECT_THAT(ErrorOf([&] {
                  torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true,
                                        /*create_graph=*/true);
                }),
                HasSubstr("no second derivative"));
  });
}

TEST(RegionsTest, AnExchangeIsOverWhenAnExceptionLeavesIt) {
  OnRanks(2, [](Communicator& comm) {
    const torch::Tensor x = at::full({1 << 20}, 1.0);
    EXPECT_EQ(ErrorOf([&] {
                const Exchange sum = StartAllReduce(x, comm.world(), nullptr);
                throw std::runtime_error("out of memory");
              }),
              "out of memory");
    EXPECT_EQ(x.min().item<double>(), 2);
  });
}

TEST(RegionsTest, SaysHowManyRanksDivide) {
  EXPECT_TRUE(CheckDivides("attention heads", 4, 2).ok());
  EXPECT_EQ(CheckDivides("attention heads", 4, 3).message(),
            "tp=3: 4 attention heads do not divide among 3 ranks; 1, 2 or 4 "
            "do");
  EXPECT_EQ(CheckDivides("hidden features", 1, 2).message(),
            "tp=2: 1 hidden features do not divide among 2 ranks; 1 does");
}

}  // namespace
}  // namespace rankwise
