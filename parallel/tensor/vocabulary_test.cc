#include "parallel/tensor/vocabulary.h"

#include <string>
#include <vector>

#include "ATen/Context.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/tensor/linear.h"

namespace rankwise {
namespace {

constexpr int64_t kFeatures = 6, kHidden = 8, kTokens = 5;

torch::Tensor Leaf(const torch::Tensor& x) {
  return x.detach().clone().requires_grad_();
}

// A block with a residual between an embedding and a head with tied weights.
struct LanguageModel {
  torch::Tensor tokens, target, embedding, weight1, weight2;

  static LanguageModel Draw(int64_t vocabulary) {
    return {at::randint(vocabulary, {2, kTokens}, at::kLong),
            at::randint(vocabulary, {2, kTokens}, at::kLong),
            Leaf(at::randn({vocabulary, kFeatures}, at::kDouble)),
            Leaf(at::randn({kHidden, kFeatures}, at::kDouble)),
            Leaf(at::randn({kFeatures, kHidden}, at::kDouble))};
  }

  LanguageModel Part(const TensorParallel& tp) const {
    return {tokens, target, Leaf(PartOf(embedding, 0, tp)),
            Leaf(PartOf(weight1, 0, tp)), Leaf(PartOf(weight2, 1, tp))};
  }

  torch::Tensor Loss() const {
    const torch::Tensor x = at::embedding(embedding, tokens);
    const torch::Tensor y =
        x + at::linear(at::gelu(at::linear(x, weight1)), weight2);
    return at::cross_entropy_loss(at::linear(y, embedding).flatten(0, 1),
                                  target.flatten());
  }

  torch::Tensor Loss(int64_t vocabulary, const TensorParallel& tp) const {
    const torch::Tensor x = VocabularyParallelEmbedding(tokens, embedding, tp);
    const torch::Tensor hidden =
        at::gelu(ColumnParallelLinear(x, weight1, {}, kTokens, tp));
    const torch::Tensor y = x + RowParallelLinear(hidden, weight2, {}, tp);
    return VocabularyParallelCrossEntropy(
        ColumnParallelLinear(y, embedding, {}, kTokens, tp), target, vocabulary,
        tp);
  }
};

void ExpectEqual(const torch::Tensor& got, const torch::Tensor& want,
                 double bound = 1e-12) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_LE((got - want).abs().max().item<double>(), bound);
}

// With 5 entries the last of 4 ranks has none, with 10 it has one.
TEST(VocabularyTest, ALanguageModelLearnsAsOnOneRank) {
  for (const int64_t vocabulary : {5, 8, 10}) {
    const LanguageModel whole = LanguageModel::Draw(vocabulary);
    const torch::Tensor loss = whole.Loss();
    loss.backward();
    for (const int ranks : {1, 2, 4}) {
      OnRanks(ranks, [&](Communicator& comm) {
        for (const bool sequence_parallel : {false, true}) {
          SCOPED_TRACE(absl::StrCat("ranks ", ranks, ", vocabulary ",
                                    vocabulary, ", sequence ",
                                    sequence_parallel));
          const TensorParallel tp{comm.world(), sequence_parallel};
          const LanguageModel part = whole.Part(tp);
          const torch::Tensor got = part.Loss(vocabulary, tp);
          ExpectEqual(got, loss);
          got.backward();
          const auto expect_gradient = [&](const torch::Tensor& leaf,
                                           const torch::Tensor& want,
                                           int64_t dim) {
            ExpectEqual(leaf.grad(), PartOf(want.grad(), dim, tp));
          };
          expect_gradient(part.embedding, whole.embedding, 0);
          expect_gradient(part.weight1, whole.weight1, 0);
          expect_gradient(part.weight2, whole.weight2, 1);
        }
      });
    }
  }
}

// Large bf16 logits that are divided among the ranks.
TEST(VocabularyTest, CrossEntropyOfBf16IsComputedInFp32) {
  at::manual_seed(1);
  const torch::Tensor logits =
      (at::randn({2, 3, 10}) * 100).to(at::kBFloat16).requires_grad_();
  const torch::Tensor target = at::randint(10, {2, 3}, at::kLong);
  const torch::Tensor want = at::cross_entropy_loss(
      logits.to(at::kFloat).flatten(0, 1), target.flatten());
  want.backward();
  for (const int ranks : {1, 2}) {
    OnRanks(ranks, [&](Communicator& comm) {
      const TensorParallel tp{.group = comm.world()};
      const torch::Tensor part = PartOf(logits, 2, tp).requires_grad_();
      comm.StartTraffic();
      const torch::Tensor got =
          VocabularyParallelCrossEntropy(part, target, 10, tp);
      int64_t bytes = 0;
      for (const CommEvent& event : comm.TakeTraffic()) bytes += event.bytes;
      EXPECT_EQ(bytes, ranks == 1 ? 0 : 6 * 3 * 4);
      EXPECT_EQ(got.scalar_type(), at::kFloat);
      ExpectEqual(got, want, 1e-6 * want.item<double>());
      got.backward();
      // A bf16 between 1/8 and 1/6, the largest gradient, is rounded to 2^-10.
      ExpectEqual(part.grad(), PartOf(logits.grad(), 2, tp), 1.0 / (1 << 10));
    });
  }
}

}  // namespace
}  // namespace rankwise
