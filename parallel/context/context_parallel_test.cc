#include "parallel/context/context_parallel.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/autocast_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int kMostRanks = 4;
constexpr int64_t kBatch = 2, kHeads = 12, kFeatures = 8;
constexpr SequenceShape kCausal = {48, true}, kOpen = {65, false};

ContextParallel ContextOf(Communicator& comm, ContextMethod method) {
  return {comm.world(), method};
}

std::string NameOf(ContextMethod method) {
  return method == ContextMethod::kRing ? "ring" : "ulysses";
}

TEST(ContextPositionsTest, EveryTokenIsOnOneRankAndTheWorkIsEven) {
  for (const SequenceShape& shape : {kCausal, kOpen}) {
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      std::vector<at::Tensor> all;
      std::vector<int64_t> pairs;  // attended by each rank
      for (int place = 0; place < ranks; ++place) {
        all.push_back(ContextPositions(shape, ranks, place));
        EXPECT_TRUE((all.back().diff() > 0).all().item<bool>());
        pairs.push_back(shape.causal ? (all.back() + 1).sum().item<int64_t>()
                                     : all.back().numel() * shape.tokens);
      }
      EXPECT_TRUE(at::equal(std::get<0>(at::cat(all).sort()),
                            at::arange(shape.tokens)));
      const auto [fewest, most] =
          std::minmax_element(pairs.begin(), pairs.end());
      EXPECT_LE(*most - *fewest, shape.causal ? 0 : shape.tokens);
    }
  }
  EXPECT_EQ(ContextPositions(kOpen, 2, 0).numel(), 33);
}

TEST(CheckContextParallelTest, NamesWhatFits) {
  constexpr auto kRing = ContextMethod::kRing,
                 kUlysses = ContextMethod::kUlysses;
  const struct {
    SequenceShape shape;
    int64_t heads, kv_heads;
    ContextMethod method;
    int ranks;
    std::string refusal;
  } cases[] = {
      {kCausal, 4, 4, kRing, 3, ""},
      {kOpen, 4, 1, kRing, 3, ""},
      {kOpen, 4, 4, kUlysses, 4, ""},
      {kOpen, 4, 2, kUlysses, 2, ""},
      {{7, true}, 1, 1, kUlysses, 1, ""},
      {kOpen, 4, 4, kUlysses, 3,
       "--cp=3 --context=ulysses: 4 attention heads do not divide among 3 "
       "ranks; 1, 2 or 4 do"},
      {kOpen, 1, 1, kUlysses, 2,
       "--cp=2 --context=ulysses: 1 attention head does not divide among 2 "
       "ranks; 1 does"},
      {kOpen, 4, 2, kUlysses, 4,
       "--cp=4 --context=ulysses: 2 key and value heads do not divide among 4 "
       "ranks; 1 or 2 do"},
      {kOpen, 4, 1, kUlysses, 2,
       "--cp=2 --context=ulysses: 1 key and value head does not divide among "
       "2 ranks; 1 does"},
      {{16, true},
       4,
       4,
       kRing,
       3,
       "--cp=3 --context=ring: 16 tokens do not divide into 6 equal pieces, "
       "two for each rank; --cp=1, 2, 4 or 8 fits"},
      {{7, true},
       4,
       4,
       kRing,
       2,
       "--cp=2 --context=ring: 7 tokens do not divide into 4 equal pieces, two "
       "for each rank; --cp=1 fits"},
      {{3, false},
       4,
       4,
       kRing,
       4,
       "--cp=4 --context=ring: 3 tokens leave some ranks without any; --cp=3 "
       "is the most that fits"},
      {kOpen, 4, 4, kRing, 0,
       "--cp=0 --context=ring: there must be at least 1 rank"},
  };
  for (const auto& c : cases) {
    const absl::Status status =
        CheckContextParallel(c.shape, c.heads, c.kv_heads, c.method, c.ranks);
    EXPECT_EQ(status.message(), c.refusal);
    EXPECT_EQ(absl::IsInvalidArgument(status), !c.refusal.empty());
  }
}

// Attention and its gradients, for the loss sum(out * weight).
struct Attention {
  at::Tensor q, k, v, weight;  // [B, heads or kv_heads, tokens, features]
  at::Tensor out;
  std::vector<at::Tensor> gradients;  // of q, k, v
};

Attention Drawn(int64_t tokens, at::ScalarType type,
                int64_t kv_heads = kHeads) {
  at::manual_seed(1);
  const auto draw = [&](int64_t heads) {
    return at::randn({kBatch, tokens, heads, kFeatures}, at::kDouble)
        .to(type)
        .transpose(1, 2);
  };
  // With the strides of a fused projection to q, k and v.
  const std::vector<at::Tensor> qkv =
      draw(kHeads + 2 * kv_heads)
          .split_with_sizes({kHeads, kv_heads, kv_heads}, /*dim=*/1);
  return {qkv[0], qkv[1], qkv[2], draw(kHeads), {}, {}};
}

template <typename Attend>
void Differentiate(Attention& a, Attend attend) {
  const std::vector<at::Tensor> leaves = {a.q.detach().requires_grad_(),
                                          a.k.detach().requires_grad_(),
                                          a.v.detach().requires_grad_()};
  a.out = attend(leaves[0], leaves[1], leaves[2]);
  (a.out * a.weight.to(a.out.scalar_type())).sum().backward();
  for (const at::Tensor& leaf : leaves) a.gradients.push_back(leaf.grad());
}

// Computed in one process and fp64, with each key and value head repeated for
// its query heads.
Attention Expected(const Attention& drawn, bool causal) {
  Attention whole = {drawn.q.to(at::kDouble),
                     drawn.k.to(at::kDouble),
                     drawn.v.to(at::kDouble),
                     drawn.weight.to(at::kDouble),
                     {},
                     {}};
  const int64_t group = drawn.q.size(1) / drawn.k.size(1);
  Differentiate(whole, [&](const auto& q, const auto& k, const auto& v) {
    return at::scaled_dot_product_attention(q, k.repeat_interleave(group, 1),
                                            v.repeat_interleave(group, 1), {},
                                            0.0, causal);
  });
  return whole;
}

void ExpectNear(const at::Tensor& actual, const at::Tensor& expected,
                double bound, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double error =
      (actual.to(at::kDouble) - expected).abs().max().item<double>();
  EXPECT_LE(error, bound * expected.abs().max().item<double>()) << what;
}

// Expects the ranks' results to equal their slices of the whole.
void ExpectEqualsOneProcess(Communicator& comm, const Attention& drawn,
                            const Attention& expected,
                            const SequenceShape& shape, ContextMethod method,
                            double bound) {
  const ContextParallel cp = ContextOf(comm, method);
  const auto slice = [&](const at::Tensor& x) {
    return ContextSlice(x, 2, shape, cp);
  };
  Attention here = {drawn.q, drawn.k, drawn.v, slice(drawn.weight), {}, {}};
  Differentiate(here, [&](const auto& q, const auto& k, const auto& v) {
    return ContextAttention(slice(q), slice(k), slice(v), shape, 0.0, cp);
  });
  const std::string where = NameOf(method) + " on " +
                            std::to_string(comm.rank()) + " of " +
                            std::to_string(comm.world_size()) + " with " +
                            std::to_string(drawn.k.size(1)) + " kv heads";
  EXPECT_EQ(here.out.scalar_type(), drawn.q.scalar_type());
  ExpectNear(here.out, slice(expected.out), bound, where + ": out");
  for (size_t i = 0; i < 3; ++i) {
    ExpectNear(slice(here.gradients[i]), slice(expected.gradients[i]), bound,
               where + ": gradient " + std::to_string(i));
  }
}

struct Precision {
  at::ScalarType type;
  // Relative to the largest value. bf16 and fp16 round each rank's part of a
  // result to 8 and 11 bits, and the kernels also round the weights.
  double bound;
};

class ContextAttentionTest : public testing::TestWithParam<Precision> {};

TEST_P(ContextAttentionTest, EqualsAttentionInOneProcess) {
  const Precision precision = GetParam();
  for (const SequenceShape& shape :
       {kCausal, SequenceShape{48, false}, kOpen}) {
    const Attention drawn = Drawn(shape.tokens, precision.type);
    const Attention expected = Expected(drawn, shape.causal);
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      OnRanks(ranks, [&](Communicator& comm) {
        for (auto method : {ContextMethod::kRing, ContextMethod::kUlysses})
          ExpectEqualsOneProcess(comm, drawn, expected, shape, method,
                                 precision.bound);
      });
    }
  }
}

TEST_P(ContextAttentionTest, EqualsGroupedAttentionInOneProcess) {
  const Precision precision = GetParam();
  for (const SequenceShape& shape : {kCausal, kOpen}) {
    for (int64_t kv_heads : {1, 2, 4}) {
      const Attention drawn = Drawn(shape.tokens, precision.type, kv_heads);
      const Attention expected = Expected(drawn, shape.causal);
      for (int ranks : {1, 2, 4}) {
        OnRanks(ranks, [&](Communicator& comm) {
          for (auto method : {ContextMethod::kRing, ContextMethod::kUlysses}) {
            if (CheckContextParallel(shape, kHeads, kv_heads, method, ranks)
                    .ok()) {
              ExpectEqualsOneProcess(comm, drawn, expected, shape, method,
                                     precision.bound);
            }
          }
        });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, ContextAttentionTest,
    testing::Values(Precision{at::kDouble, 1e-12}, Precision{at::kFloat, 1e-5},
                    Precision{at::kBFloat16, 2e-2}, Precision{at::kHalf, 4e-3}),
    [](const auto& test) { return std::string(toString(test.param.type)); });

// Returns the bytes of the `op` calls that `action` starts.
template <typename Action>
int64_t BytesOf(Communicator& comm, const std::string& op, Action action) {
  comm.StartTraffic();
  action();
  int64_t bytes = 0;
  for (const CommEvent& event : comm.TakeTraffic()) {
    if (event.op == op) bytes += event.bytes;
  }
  return bytes;
}

// Messages have 2 bytes per element, but 4 for sums of gradients.
TEST(ContextTrafficTest, IsWhatTheMethodsSay) {
  const std::pair<SequenceShape, int64_t> uses[] = {
      {kCausal, kHeads}, {kCausal, 3}, {kOpen, kHeads}, {kOpen, 3}};
  for (const auto& [shape, kv_heads] : uses) {
    const Attention drawn = Drawn(shape.tokens, at::kBFloat16, kv_heads);
    OnRanks(3, [&, shape = shape, kv_heads = kv_heads](Communicator& comm) {
      const int64_t per_head = kBatch * kFeatures;
      const auto tokens = [&](int place) {
        return ContextPositions(shape, 3, place % 3).numel();
      };
      const int64_t here = tokens(comm.rank());
      const int64_t next = tokens(comm.rank() + 1);
      const int64_t kv = 2 * kv_heads * per_head;  // elements per token
      const int64_t keys = kv * (shape.tokens - next) * 2;
      const int64_t gradients = kv * shape.tokens * 4;
      const int64_t q = kHeads * per_head;
      const struct {
        ContextMethod method;
        std::string op;
        int64_t forward, backward;
      } cases[] = {
          {ContextMethod::kRing, "send", keys, keys + gradients},
          {ContextMethod::kUlysses, "all_to_all",
           (q + kv) * here * 2 + q / 3 * shape.tokens * 2,
           q * here * 2 + (q + kv) / 3 * shape.tokens * 2},
      };
      for (const auto& c : cases) {
        const ContextParallel cp = ContextOf(comm, c.method);
        const auto slice = [&](const at::Tensor& x) {
          return ContextSlice(x, 2, shape, cp).detach().requires_grad_();
        };
        at::Tensor out;
        EXPECT_EQ(BytesOf(comm, c.op,
                          [&] {
                            out =
                                ContextAttention(slice(drawn.q), slice(drawn.k),
                                                 slice(drawn.v), shape, 0, cp);
                          }),
                  c.forward);
        EXPECT_EQ(BytesOf(comm, c.op, [&] { out.sum().backward(); }),
                  c.backward);
      }
    });
  }
}

TEST(ContextAttentionFeaturesTest, FollowsAutocastAndCountsWaiting) {
  const Attention drawn = Drawn(kCausal.tokens, at::kFloat);
  const Attention expected = Expected(drawn, /*causal=*/true);
  OnRanks(2, [&](Communicator& comm) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    for (auto method : {ContextMethod::kRing, ContextMethod::kUlysses}) {
      ExposedComm exposed;
      ContextParallel cp = ContextOf(comm, method);
      cp.exposed = &exposed;
      const auto slice = [&](const at::Tensor& x) {
        return ContextSlice(x, 2, kCausal, cp);
      };
      const at::Tensor out = ContextAttention(slice(drawn.q), slice(drawn.k),
                                              slice(drawn.v), kCausal, 0, cp);
      EXPECT_EQ(out.scalar_type(), at::kBFloat16);
      ExpectNear(out, slice(expected.out), 2e-2, NameOf(method));
      EXPECT_GT(exposed.Take().Wait(), 0);
    }
  });
}

TEST(ContextAttentionFeaturesTest, OnlyUlyssesDropsOut) {
  const Attention drawn = Drawn(kCausal.tokens, at::kFloat);
  OnRanks(2, [&](Communicator& comm) {
    const auto attend = [&](ContextMethod method) {
      const ContextParallel cp = ContextOf(comm, method);
      const at::Tensor x = ContextSlice(drawn.q, 2, kCausal, cp);
      return ContextAttention(x, x, x, kCausal, /*dropout=*/1, cp);
    };
    EXPECT_EQ(attend(ContextMethod::kUlysses).count_nonzero().item<int>(), 0);
    EXPECT_THAT(ErrorOf([&] { attend(ContextMethod::kRing); }),
                HasSubstr("--context=ulysses has"));
  });
}

TEST(ContextAttentionFeaturesTest, RefusesOtherNumbersOfHeads) {
  const Attention drawn = Drawn(kCausal.tokens, at::kFloat, /*kv_heads=*/4);
  OnRanks(1, [&](Communicator& comm) {
    const ContextParallel cp = ContextOf(comm, ContextMethod::kRing);
    EXPECT_THAT(ErrorOf([&] {
                  ContextAttention(drawn.q.narrow(1, 0, 6), drawn.k, drawn.v,
                                   kCausal, 0, cp);
                }),
                HasSubstr("k and v may have a divisor of q's heads"));
  });
}

TEST(ContextAttentionFeaturesTest, RefusesAnotherNumberOfTokens) {
  const Attention drawn = Drawn(kOpen.tokens, at::kFloat);
  OnRanks(2, [&](Communicator& comm) {
    const ContextParallel cp = ContextOf(comm, ContextMethod::kRing);
    EXPECT_THAT(ErrorOf([&] {
                  ContextAttention(drawn.q, drawn.k, drawn.v, kOpen, 0, cp);
                }),
                HasSubstr(" of 2 has 3"));
  });
}

TEST(ContextAttentionFeaturesTest, ARankThatLeavesFailsTheOthers) {
  const Attention drawn = Drawn(kOpen.tokens, at::kFloat);
  OnRanks(3, [&](Communicator& comm) {
    if (comm.rank() == 2) return;
    const ContextParallel cp = ContextOf(comm, ContextMethod::kRing);
    const at::Tensor x = ContextSlice(drawn.q, 2, kOpen, cp);
    EXPECT_NE(ErrorOf([&] { ContextAttention(x, x, x, kOpen, 0, cp); }), "");
  });
}

// The kernel rejects q of a different type than k and v, which are in flight.
TEST(ContextAttentionFeaturesTest, AnErrorLeavesNothingInFlight) {
  const Attention drawn = Drawn(kOpen.tokens, at::kFloat);
  OnRanks(3, [&](Communicator& comm) {
    const ContextParallel cp = ContextOf(comm, ContextMethod::kRing);
    const at::Tensor x = ContextSlice(drawn.q, 2, kOpen, cp);
    comm.StartTraffic();
    EXPECT_NE(ErrorOf([&] {
                ContextAttention(x.to(at::kDouble), x, x, kOpen, 0, cp);
              }),
              "");
    const std::vector<CommEvent> events = comm.TakeTraffic();
    EXPECT_EQ(events.size(), 2);  // one sent, one received
    for (const CommEvent& event : events) EXPECT_GT(event.end_ns, 0);
  });
}

TEST(SumOverContextTest, SumsForwardAndBackward) {
  OnRanks(3, [](Communicator& comm) {
    const ContextParallel cp = ContextOf(comm, ContextMethod::kRing);
    const at::Tensor x =
        (at::arange(4, at::kDouble) + comm.rank()).requires_grad_();
    const at::Tensor sum = SumOverContext(x, cp);
    EXPECT_TRUE(at::equal(sum, 3 * at::arange(4, at::kDouble) + 3));
    ((comm.rank() + 1) * sum).sum().backward();
    EXPECT_TRUE((x.grad() == 6).all().item<bool>());
  });
}

}  // namespace
}  // namespace rankwise
