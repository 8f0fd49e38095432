#include "parallel/tensor/linear.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/TensorOperators.h"
#include "ATen/autocast_mode.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/randn.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

using testing::ElementsAre;

constexpr int64_t kFeatures = 6, kHidden = 8;

class Bf16Autocast {
 public:
  Bf16Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Bf16Autocast() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

torch::Tensor Leaf(const torch::Tensor& x) {
  return x.detach().clone().requires_grad_();
}

// Two layers, their input, and the gradient of their output.
struct Mlp {
  torch::Tensor x, weight1, bias1, weight2, bias2, dy;

  static Mlp Draw(int64_t batch, int64_t tokens, at::ScalarType type) {
    const std::vector<int64_t> shape{batch, tokens, kFeatures};
    at::manual_seed(1);
    return {at::randn(shape, type),       at::randn({kHidden, kFeatures}, type),
            at::randn({kHidden}, type),   at::randn({kFeatures, kHidden}, type),
            at::randn({kFeatures}, type), at::randn(shape, type)};
  }

  int64_t tokens() const { return x.size(1); }

  // Returns leaves, with the rank's parts of the weights.
  Mlp Part(const TensorParallel& tp) const {
    return {Leaf(x),
            Leaf(PartOf(weight1, 0, tp)),
            Leaf(PartOf(bias1, 0, tp)),
            Leaf(PartOf(weight2, 1, tp)),
            Leaf(bias2),
            dy};
  }

  torch::Tensor Forward() const {
    return at::linear(at::gelu(at::linear(x, weight1, bias1)), weight2, bias2);
  }

  // Maps replicated activations to replicated activations.
  torch::Tensor Forward(const TensorParallel& tp) const {
    const bool divided = tp.sequence_parallel;
    const torch::Tensor in = divided ? ScatterToRanks(x, 1, tp) : x;
    const torch::Tensor hidden =
        at::gelu(ColumnParallelLinear(in, weight1, bias1, tokens(), tp));
    const torch::Tensor y = RowParallelLinear(hidden, weight2, bias2, tp);
    return divided ? GatherFromRanks(y, 1, tokens(), tp) : y;
  }
};

// Returns the largest difference relative to the largest value.
double Error(const torch::Tensor& got, const torch::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

// Compares the gradients of this rank's part of the model to the whole model's.
void ExpectGradients(const Mlp& part, const Mlp& whole, double bound,
                     const TensorParallel& tp) {
  const auto part_of = [&](const torch::Tensor& leaf, int64_t dim) {
    return PartOf(leaf.grad(), dim, tp);
  };
  const torch::Tensor dbias2 = tp.sequence_parallel
                                   ? ReduceFromRanks(part.bias2.grad(), tp)
                                   : part.bias2.grad();
  EXPECT_LE(Error(part.x.grad(), whole.x.grad()), bound);
  EXPECT_LE(Error(part.weight1.grad(), part_of(whole.weight1, 0)), bound);
  EXPECT_LE(Error(part.bias1.grad(), part_of(whole.bias1, 0)), bound);
  EXPECT_LE(Error(part.weight2.grad(), part_of(whole.weight2, 1)), bound);
  EXPECT_LE(Error(dbias2, whole.bias2.grad()), bound);
}

TEST(TensorParallelLinearTest, ComputesWhatOneRankDoes) {
  std::vector<Mlp> wholes;
  // The second's tokens do not divide evenly; the third has fewer than
  // ranks.
  for (const auto& [batch, tokens] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {2, 7}, {3, 2}}) {
    wholes.push_back(Mlp::Draw(batch, tokens, at::kDouble).Part({}));
    wholes.back().Forward().backward(wholes.back().dy);
  }
  for (const int ranks : {2, 4}) {
    OnRanks(ranks, [&](Communicator& comm) {
      for (const bool sequence_parallel : {false, true}) {
        for (const int pieces : {1, 2, 3}) {
          ExposedComm exposed;
          const TensorParallel tp{comm.world(), sequence_parallel, pieces,
                                  &exposed};
          for (const Mlp& whole : wholes) {
            SCOPED_TRACE(absl::StrCat("ranks ", ranks, ", pieces ", pieces,
                                      ", sequence ", sequence_parallel,
                                      ", tokens ", whole.tokens()));
            const Mlp part = whole.Part(tp);
            const torch::Tensor y = part.Forward(tp);
            EXPECT_LE(Error(y, whole.Forward()), 1e-13);
            y.backward(part.dy);
            ExpectGradients(part, whole, 1e-13, tp);
          }
          EXPECT_GT(exposed.Take().Wait(), 0);
        }
      }
    });
  }
}

TEST(TensorParallelLinearTest, LayersNeedNoBiasAndNoGradients) {
  const Mlp whole = Mlp::Draw(1, 8, at::kDouble).Part({});
  const torch::Tensor hidden = at::linear(whole.x, whole.weight1);
  const torch::Tensor y = at::linear(hidden, whole.weight2);
  y.backward(whole.dy);
  OnRanks(2, [&](Communicator& comm) {
    const TensorParallel tp{.group = comm.world()};
    const Mlp part = whole.Part(tp);
    part.weight2.requires_grad_(false);
    // Any number of dimensions before the last.
    const torch::Tensor got = RowParallelLinear(
        ColumnParallelLinear(part.x.detach()[0], part.weight1, {}, 8, tp),
        part.weight2, {}, tp);
    EXPECT_LE(Error(got, y[0]), 1e-13);
    got.backward(whole.dy[0]);
    EXPECT_FALSE(part.weight2.grad().defined());
    EXPECT_LE(Error(part.weight1.grad(), PartOf(whole.weight1.grad(), 0, tp)),
              1e-13);
  });
}

// A rounding to bf16 is off by up to 2^-9 of the value. At most eight follow
// one another: the input, weights, hidden features, output and their gradients.
TEST(TensorParallelLinearTest, UnderAutocastIsAsNearToFp32AsBf16Is) {
  const Mlp whole = Mlp::Draw(2, 7, at::kFloat).Part({});
  whole.Forward().backward(whole.dy);
  const double bound = 8.0 / (1 << 9);
  OnRanks(2, [&](Communicator& comm) {
    for (const bool sequence_parallel : {false, true}) {
      const TensorParallel tp{comm.world(), sequence_parallel};
      const Mlp part = whole.Part(tp);
      torch::Tensor y;
      {
        const Bf16Autocast autocast;
        y = part.Forward(tp);
      }
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      EXPECT_LE(Error(y.to(at::kFloat), whole.Forward()), bound);
      y.backward(part.dy.to(at::kBFloat16));
      EXPECT_EQ(part.weight1.grad().scalar_type(), at::kFloat);
      ExpectGradients(part, whole, bound, tp);
    }
  });
}

TEST(TensorParallelLinearTest, AloneIsLinearToTheLastBit) {
  const Mlp whole = Mlp::Draw(2, 7, at::kFloat);
  for (const bool autocast : {false, true}) {
    const Mlp want = whole.Part({}), got = whole.Part({});
    const TensorParallel tp{.sequence_parallel = true, .overlap_pieces = 3};
    for (const auto& [mlp, divided] :
         {std::pair(&want, false), std::pair(&got, true)}) {
      std::optional<Bf16Autocast> scope;
      if (autocast) scope.emplace();
      const torch::Tensor y = divided ? mlp->Forward(tp) : mlp->Forward();
      scope.reset();
      y.backward(whole.dy.to(y.scalar_type()));
    }
    EXPECT_TRUE(at::equal(got.x.grad(), want.x.grad()));
    EXPECT_TRUE(at::equal(got.weight1.grad(), want.weight1.grad()));
    EXPECT_TRUE(at::equal(got.weight2.grad(), want.weight2.grad()));
    EXPECT_TRUE(at::equal(got.bias2.grad(), want.bias2.grad()));
  }
}

// Returns "all_reduce of 768" etc. in launch order.
std::vector<std::string> Calls(const std::vector<CommEvent>& events) {
  std::vector<std::string> calls;
  for (const CommEvent& event : events)
    calls.push_back(absl::StrCat(event.op, " of ", event.bytes));
  return calls;
}

TEST(TensorParallelLinearTest, ExchangesActivationsOnceEachWay) {
  const Mlp whole = Mlp::Draw(2, 8, at::kFloat);
  const auto traffic = [&](Communicator& comm, bool sequence, int pieces,
                           bool autocast) {
    const TensorParallel tp{comm.world(), sequence, pieces};
    const Mlp part = whole.Part(tp);
    const torch::Tensor in =
        sequence ? Leaf(ScatterToRanks(part.x, 1, tp)) : part.x;
    std::optional<Bf16Autocast> scope;
    if (autocast) scope.emplace();
    comm.StartTraffic();
    const torch::Tensor y = RowParallelLinear(
        ColumnParallelLinear(in, part.weight1, part.bias1, 8, tp), part.weight2,
        part.bias2, tp);
    scope.reset();
    y.sum().backward();
    return Calls(comm.TakeTraffic());
  };
  // All activations between the layers: 2 * 8 * 6 numbers of 4 bytes, 384.
  OnRanks(4, [&](Communicator& comm) {
    EXPECT_THAT(traffic(comm, false, 1, false),
                ElementsAre("all_reduce of 384", "all_reduce of 384"));
    EXPECT_THAT(traffic(comm, false, 1, true),
                ElementsAre("all_reduce of 192", "all_reduce of 192"));
    EXPECT_THAT(traffic(comm, false, 2, false),
                ElementsAre("all_reduce of 192", "all_reduce of 192",
                            "all_reduce of 384"));
    // One part is 96 bytes. Backward gathers the column layer's input again.
    EXPECT_THAT(traffic(comm, true, 1, false),
                ElementsAre("all_gather of 96", "reduce_scatter of 384",
                            "all_gather of 96", "all_gather of 96",
                            "reduce_scatter of 384"));
    EXPECT_THAT(traffic(comm, true, 2, true),
                ElementsAre("all_gather of 24", "all_gather of 24",
                            "reduce_scatter of 96", "reduce_scatter of 96",
                            "all_gather of 24", "all_gather of 24",
                            "all_gather of 48", "reduce_scatter of 192"));
  });
}

}  // namespace
}  // namespace rankwise
