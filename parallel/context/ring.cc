#include "parallel/context/ring.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/core/DispatchKeySet.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "parallel/context/block_attention.h"
#include "parallel/context/exchange.h"
#include "parallel/context/slices.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kKeysTag = 0, kGradientsTag = 1;

// What a step computes: this rank's rows from `first_row` on attend to the
// first `keys` of the keys it has at that step; `causal`: row i to those up to
// i only.
struct Step {
  int64_t first_row = 0;
  int64_t keys = 0;
  bool causal = false;

  // Of x [B, heads, rows, ...].
  torch::Tensor Rows(const torch::Tensor& x) const {
    return x.narrow(2, first_row, x.size(2) - first_row);
  }
  torch::Tensor Keys(const torch::Tensor& x) const {
    return x.narrow(2, 0, keys);
  }
  BlockAttention Rows(const BlockAttention& whole) const {
    return {Rows(whole.out), Rows(whole.log_sum_exp)};
  }
};

// The steps of this rank. `held` in one of them is [2, B, heads, tokens of that
// step's source, features]: the source's keys and values, or their gradients.
class Ring {
 public:
  Ring(const SequenceShape& shape, const ContextParallel& cp)
      : shape_(shape), cp_(cp) {}

  int steps() const { return cp_.size(); }
  bool IsLast(int step) const { return step + 1 == steps(); }

  Step StepAt(int step) const {
    const int source = SourceAt(step);
    const int64_t keys = TokensAt(shape_, steps(), source);
    if (!shape_.causal || step == 0) return {0, keys, shape_.causal};
    // The two pieces of a source with a lower place are before and after both
    // of this rank's; those of a source with a higher one are between them.
    return source < cp_.place() ? Step{0, keys / 2, false}
                                : Step{keys / 2, keys, false};
  }

  // To receive what is held in `step`; that after the last is the first again.
  torch::Tensor BufferFor(int step, const torch::Tensor& held) const {
    std::vector<int64_t> sizes = held.sizes().vec();
    sizes[3] = TokensAt(shape_, steps(), SourceAt(step));
    return at::empty(sizes, held.options());
  }

 private:
  // Whose keys this rank has.
  int SourceAt(int step) const {
    return (cp_.place() - step + steps()) % steps();
  }

  const SequenceShape shape_;
  const ContextParallel& cp_;
};

BlockAttention RingForward(const torch::Tensor& q, const torch::Tensor& k,
                           const torch::Tensor& v, const Ring& ring,
                           const ContextParallel& cp) {
  BlockAttention whole;
  RingShift keys(cp, kKeysTag);
  torch::Tensor held = at::stack({k, v});
  for (int i = 0; i < ring.steps(); ++i) {
    if (!ring.IsLast(i)) keys.Start(held, ring.BufferFor(i + 1, held));
    const Step step = ring.StepAt(i);
    BlockAttention block = AttendToBlock(step.Rows(q), step.Keys(held[0]),
                                         step.Keys(held[1]), step.causal);
    if (i == 0) {
      whole = {block.out.to(block.log_sum_exp.scalar_type()),
               block.log_sum_exp};
    } else {
      MergeBlock(block, step.Rows(whole));
    }
    if (!ring.IsLast(i)) held = keys.Take();
  }
  return {whole.out.to(q.scalar_type()), whole.log_sum_exp};
}

// A source's keys and values are followed, a step behind, by the sums of their
// gradients, which go on to their owner after the last step.
BlockGradients RingBackward(const torch::Tensor& gradient,
                            const torch::Tensor& q, const torch::Tensor& k,
                            const torch::Tensor& v, const BlockAttention& whole,
                            const Ring& ring, const ContextParallel& cp) {
  const auto wide = q.options().dtype(whole.log_sum_exp.scalar_type());
  const torch::Tensor dq = at::zeros_like(q, wide);
  RingShift keys(cp, kKeysTag), gradients(cp, kGradientsTag);
  torch::Tensor held = at::stack({k, v});
  torch::Tensor sums = at::zeros(held.sizes(), wide);
  for (int i = 0; i < ring.steps(); ++i) {
    if (!ring.IsLast(i)) keys.Start(held, ring.BufferFor(i + 1, held));
    const Step step = ring.StepAt(i);
    const BlockGradients block = AttendToBlockBackward(
        step.Rows(gradient), step.Rows(q), step.Keys(held[0]),
        step.Keys(held[1]), step.Rows(whole), step.causal);
    step.Rows(dq).add_(block.q);
    if (i > 0) sums = gradients.Take();
    step.Keys(sums[0]).add_(block.k);
    step.Keys(sums[1]).add_(block.v);
    gradients.Start(sums, ring.BufferFor(i + 1, sums));
    if (!ring.IsLast(i)) held = keys.Take();
  }
  sums = gradients.Take().to(q.scalar_type());
  return {dq.to(q.scalar_type()), sums[0], sums[1]};
}

class RingFunction : public torch::autograd::Function<RingFunction> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& q,
                               const torch::Tensor& k, const torch::Tensor& v,
                               const SequenceShape& shape,
                               const ContextParallel& cp) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const BlockAttention whole = RingForward(q, k, v, Ring(shape, cp), cp);
    ctx->save_for_backward({q, k, v, whole.out, whole.log_sum_exp});
    ctx->saved_data["tokens"] = shape.tokens;
    ctx->saved_data["causal"] = shape.causal;
    SaveContext(*ctx, cp);
    return whole.out;
  }

  static variable_list backward(AutogradContext* ctx,
                                const variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "ring attention has no second derivative; call backward "
                "without create_graph");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const variable_list saved = ctx->get_saved_variables();
    const SequenceShape shape = {ctx->saved_data["tokens"].toInt(),
                                 ctx->saved_data["causal"].toBool()};
    const ContextParallel cp = SavedContext(*ctx);
    BlockGradients d =
        RingBackward(gradients[0].contiguous(), saved[0], saved[1], saved[2],
                     {saved[3], saved[4]}, Ring(shape, cp), cp);
    return {std::move(d.q), std::move(d.k), std::move(d.v), {}, {}};
  }
};

}  // namespace

torch::Tensor RingAttention(const torch::Tensor& q, const torch::Tensor& k,
                            const torch::Tensor& v, const SequenceShape& shape,
                            const ContextParallel& cp) {
  return RingFunction::apply(q.stride(3) == 1 ? q : q.contiguous(), k, v, shape,
                             cp);
}

}  // namespace rankwise
