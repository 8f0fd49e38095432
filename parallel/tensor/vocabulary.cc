#include "parallel/tensor/vocabulary.h"

#include <algorithm>
#include <limits>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/stack.h"
#include "parallel/autograd/once_differentiable.h"
#include "parallel/comm/exchange.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Vocabulary entries relative to a rank that holds `rows` of them.
struct OwnEntries {
  OwnEntries(const torch::Tensor& entries, int64_t rows,
             const TensorParallel& tp)
      : elsewhere((entries < tp.place() * rows)
                      .logical_or_(entries >= (tp.place() + 1) * rows)),
        index((entries - tp.place() * rows).masked_fill_(elsewhere, 0)) {}
  const torch::Tensor elsewhere;  // bool: another rank holds it
  const torch::Tensor index;      // among the rank's rows; 0 if elsewhere
};

at::ScalarType LossType(const torch::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

class CrossEntropyFunction : public OnceDifferentiable<CrossEntropyFunction> {
 public:
  static constexpr char kName[] = "VocabularyParallelCrossEntropy";

  static torch::Tensor forward(AutogradContext* ctx,
                               const torch::Tensor& logits,
                               const torch::Tensor& target, int64_t vocabulary,
                               const TensorParallel& tp) {
    const int64_t columns = logits.size(-1);
    // Modified in place until it is the softmax.
    const torch::Tensor x =
        logits.reshape({-1, columns})
            .to(LossType(logits), /*non_blocking=*/false, /*copy=*/true);
    const int64_t used =
        std::clamp<int64_t>(vocabulary - tp.place() * columns, 0, columns);
    x.narrow(1, used, columns - used)
        .fill_(-std::numeric_limits<double>::infinity());
    x.sub_(StartAllReduce(x.amax(1, /*keepdim=*/true), tp.group, tp.exposed,
                          c10d::ReduceOp::MAX)
               .Finish());
    const OwnEntries own(target.reshape({-1, 1}), columns, tp);
    const torch::Tensor of_target =
        x.gather(1, own.index).masked_fill_(own.elsewhere, 0);
    x.exp_();
    const torch::Tensor sums =
        StartAllReduce(at::stack({x.sum(1, /*keepdim=*/true), of_target}),
                       tp.group, tp.exposed)
            .Finish();
    x.div_(sums[0]);
    ctx->save_for_backward({x, own.index, own.elsewhere});
    ctx->saved_data["shape"] = logits.sizes();
    ctx->saved_data["type"] = logits.scalar_type();
    return (sums[0].log() - sums[1]).mean();
  }

  // Computes (softmax - one-hot target) / number of targets.
  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &softmax = saved[0], &index = saved[1],
                        &elsewhere = saved[2];
    const torch::Tensor share = gradients[0] / softmax.size(0);
    const torch::Tensor gradient = softmax * share;
    gradient.scatter_add_(1, index,
                          (-share).expand_as(index).masked_fill(elsewhere, 0));
    return {gradient.to(ctx->saved_data["type"].toScalarType())
                .view(ctx->saved_data["shape"].toIntVector()),
            torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor VocabularyParallelEmbedding(const torch::Tensor& tokens,
                                          const torch::Tensor& weight,
                                          const TensorParallel& tp) {
  if (tp.size() == 1) return at::embedding(weight, tokens);
  const OwnEntries own(tokens, weight.size(0), tp);
  const torch::Tensor features =
      at::embedding(weight, own.index)
          .masked_fill(own.elsewhere.unsqueeze(-1), 0);
  return tp.sequence_parallel ? ReduceScatterFromRanks(features, /*dim=*/1, tp)
                              : ReduceFromRanks(features, tp);
}

torch::Tensor VocabularyParallelCrossEntropy(const torch::Tensor& logits,
                                             const torch::Tensor& target,
                                             int64_t vocabulary,
                                             const TensorParallel& tp) {
  if (tp.size() == 1) {
    return at::cross_entropy_loss(
        logits.reshape({-1, logits.size(-1)}).to(LossType(logits)),
        target.reshape({-1}));
  }
  return CrossEntropyFunction::apply(logits, target, vocabulary, tp);
}

}  // namespace rankwise
