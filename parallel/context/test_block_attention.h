// For tests of block attention on any device.
#ifndef RANKWISE_PARALLEL_CONTEXT_TEST_BLOCK_ATTENTION_H_
#define RANKWISE_PARALLEL_CONTEXT_TEST_BLOCK_ATTENTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "gtest/gtest.h"
#include "parallel/context/block_attention.h"

namespace rankwise {

struct BlockCase {
  decltype(&AttendToBlock) forward;
  decltype(&AttendToBlockBackward) backward;
  at::ScalarType type;
  int64_t features;
  int64_t kv_heads;
  double bound;  // relative to the largest value
};

// Expects two blocks, the first one causal, to merge to the attention that ATen
// computes on a CPU in fp64, with each key and value head repeated for its
// query heads.
inline void ExpectBlocksMerge(const BlockCase& c, at::Device device) {
  constexpr int64_t kHeads = 4, kRows = 12, kKeys = 20;
  std::vector<at::Tensor> x, leaves;  // q, k, v and the gradient
  at::manual_seed(1);
  const std::pair<int64_t, int64_t> sizes[] = {{kHeads, kRows},
                                               {c.kv_heads, kKeys},
                                               {c.kv_heads, kKeys},
                                               {kHeads, kRows}};
  for (const auto& [heads, tokens] : sizes) {
    const at::Tensor drawn =
        at::randn({2, heads, tokens, c.features}, at::kDouble).to(c.type);
    x.push_back(drawn.to(device));
    leaves.push_back(drawn.to(at::kDouble).detach().requires_grad_());
  }
  const at::Tensor seen = at::ones({kRows, kKeys}, at::kBool);
  const auto repeated = [&](const at::Tensor& x) {
    return x.repeat_interleave(kHeads / c.kv_heads, /*dim=*/1);
  };
  const at::Tensor expected = at::scaled_dot_product_attention(
      leaves[0], repeated(leaves[1]), repeated(leaves[2]),
      at::cat({seen.narrow(1, 0, kRows).tril(),
               seen.narrow(1, kRows, kKeys - kRows)},
              1));
  expected.backward(leaves[3]);

  const at::NoGradGuard no_grad;
  const auto first = [](const at::Tensor& y) { return y.narrow(2, 0, kRows); };
  const auto second = [](const at::Tensor& y) {
    return y.narrow(2, kRows, kKeys - kRows);
  };
  BlockAttention whole = c.forward(x[0], first(x[1]), first(x[2]), true);
  whole.out = whole.out.to(whole.log_sum_exp.scalar_type());
  MergeBlock(c.forward(x[0], second(x[1]), second(x[2]), false), whole);
  whole.out = whole.out.to(c.type);
  const BlockGradients a =
      c.backward(x[3], x[0], first(x[1]), first(x[2]), whole, true);
  const BlockGradients b =
      c.backward(x[3], x[0], second(x[1]), second(x[2]), whole, false);

  const std::pair<at::Tensor, at::Tensor> results[] = {
      {whole.out, expected},
      {a.q + b.q, leaves[0].grad()},
      {at::cat({a.k, b.k}, 2), leaves[1].grad()},
      {at::cat({a.v, b.v}, 2), leaves[2].grad()},
  };
  for (const auto& [actual, wanted] : results) {
    const double error =
        (actual.cpu().to(at::kDouble) - wanted).abs().max().item<double>();
    EXPECT_LE(error, c.bound * wanted.abs().max().item<double>())
        << toString(c.type) << ", " << c.features << " features, " << c.kv_heads
        << " kv heads";
  }
}

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_TEST_BLOCK_ATTENTION_H_
