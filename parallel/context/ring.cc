#include "parallel/context/ring.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/core/DispatchKeySet.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "parallel/autograd/once_differentiable.h"
#include "parallel/autograd/saved_value.h"
#include "parallel/context/block_attention.h"
#include "parallel/context/exchange.h"
#include "parallel/context/order/ring_order.h"
#include "parallel/context/slices.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kKeysTag = 0, kGradientsTag = 1;

// The computation of a step: this rank's rows from `first_row` on attend to the
// first `keys` of the keys held in it; `causal`: row i only to keys 0 .. i.
struct Step {
  int64_t first_row = 0;
  int64_t keys = 0;
  bool causal = false;

  // Return the step's rows and keys of x [B, heads, rows, ...].
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

// The steps of this rank. `held` is [2, B, kv_heads, tokens of the step's
// source rank, features]: the source's keys and values, or their gradients.
class Ring {
 public:
  Ring(const SequenceShape& shape, const ContextParallel& cp)
      : shape_(shape), cp_(cp) {}

  int steps() const { return cp_.size(); }

  Step StepAt(int step) const {
    const int source = SourceAt(step);
    const int64_t keys = TokensAt(shape_, steps(), source);
    if (!shape_.causal || step == 0) return {0, keys, shape_.causal};
    // A lower rank's two pieces come before and after both of this rank's; a
    // higher rank's lie between them.
    return source < cp_.place() ? Step{0, keys / 2, false}
                                : Step{keys / 2, keys, false};
  }

  // Returns a receive buffer for `held` in `step`; after the last step comes
  // the first again.
  torch::Tensor BufferFor(int step, const torch::Tensor& held) const {
    std::vector<int64_t> sizes = held.sizes().vec();
    sizes[3] = TokensAt(shape_, steps(), SourceAt(step));
    return at::empty(sizes, held.options());
  }

 private:
  // Returns the rank whose keys this rank holds in `step`.
  int SourceAt(int step) const {
    return (cp_.place() - step + steps()) % steps();
  }

  const SequenceShape shape_;
  const ContextParallel& cp_;
};

// This rank's keys and values, then those of the other ranks.
class KeysAround {
 public:
  KeysAround(const torch::Tensor& k, const torch::Tensor& v, const Ring& ring,
             const ContextParallel& cp)
      : ring_(ring), shift_(cp, kKeysTag), held_(at::stack({k, v})) {}

  void Start(int step) {
    shift_.Start(held_, ring_.BufferFor(step + 1, held_));
  }
  void Take() { held_ = shift_.Take(); }
  const torch::Tensor& held() const { return held_; }

 private:
  const Ring& ring_;
  RingShift shift_;
  torch::Tensor held_;
};

class ForwardRank final : public RingForwardRank {
 public:
  ForwardRank(const torch::Tensor& q, const torch::Tensor& k,
              const torch::Tensor& v, const Ring& ring,
              const ContextParallel& cp)
      : q_(q), ring_(ring), keys_(k, v, ring, cp) {}

  void StartKeys(int step) override { keys_.Start(step); }
  void TakeKeys() override { keys_.Take(); }
  void Attend(int step) override {
    const Step s = ring_.StepAt(step);
    BlockAttention block = AttendToBlock(s.Rows(q_), s.Keys(keys_.held()[0]),
                                         s.Keys(keys_.held()[1]), s.causal);
    if (step == 0) {
      whole_ = {block.out.to(block.log_sum_exp.scalar_type()),
                block.log_sum_exp};
    } else {
      MergeBlock(block, s.Rows(whole_));
    }
  }

  BlockAttention Result() const {
    return {whole_.out.to(q_.scalar_type()), whole_.log_sum_exp};
  }

 private:
  const torch::Tensor q_;
  const Ring& ring_;
  KeysAround keys_;
  BlockAttention whole_;
};

class BackwardRank final : public RingBackwardRank {
 public:
  BackwardRank(const torch::Tensor& gradient, const torch::Tensor& q,
               const torch::Tensor& k, const torch::Tensor& v,
               const BlockAttention& whole, const Ring& ring,
               const ContextParallel& cp)
      : gradient_(gradient),
        q_(q),
        whole_(whole),
        ring_(ring),
        keys_(k, v, ring, cp),
        gradients_(cp, kGradientsTag) {
    const auto wide = q.options().dtype(whole.log_sum_exp.scalar_type());
    dq_ = at::zeros_like(q, wide);
    sums_ = at::zeros(keys_.held().sizes(), wide);
  }

  void StartKeys(int step) override { keys_.Start(step); }
  void TakeKeys() override { keys_.Take(); }
  void Attend(int step) override {
    const Step s = ring_.StepAt(step);
    block_ = AttendToBlockBackward(
        s.Rows(gradient_), s.Rows(q_), s.Keys(keys_.held()[0]),
        s.Keys(keys_.held()[1]), s.Rows(whole_), s.causal);
    s.Rows(dq_).add_(block_.q);
  }
  void AddGradients(int step) override {
    const Step s = ring_.StepAt(step);
    s.Keys(sums_[0]).add_(block_.k);
    s.Keys(sums_[1]).add_(block_.v);
    block_ = {};
  }
  void StartGradients(int step) override {
    gradients_.Start(sums_, ring_.BufferFor(step + 1, sums_));
  }
  void TakeGradients() override { sums_ = gradients_.Take(); }

  BlockGradients TakeResult() {
    sums_ = sums_.to(q_.scalar_type());
    return {dq_.to(q_.scalar_type()), sums_[0], sums_[1]};
  }

 private:
  const torch::Tensor gradient_, q_;
  const BlockAttention whole_;
  const Ring& ring_;
  KeysAround keys_;
  RingShift gradients_;
  torch::Tensor sums_, dq_;
  BlockGradients block_;
};

class RingFunction : public OnceDifferentiable<RingFunction> {
 public:
  static constexpr char kName[] = "RingAttention";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& q,
                               const torch::Tensor& k, const torch::Tensor& v,
                               const SequenceShape& shape,
                               const ContextParallel& cp) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const Ring ring(shape, cp);
    ForwardRank rank(q, k, v, ring, cp);
    RunRingForward(ring.steps(), rank);
    const BlockAttention whole = rank.Result();
    ctx->save_for_backward({q, k, v, whole.out, whole.log_sum_exp});
    ctx->saved_data["tokens"] = shape.tokens;
    ctx->saved_data["causal"] = shape.causal;
    SaveValue(*ctx, cp);
    return whole.out;
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const variable_list saved = ctx->get_saved_variables();
    const SequenceShape shape = {ctx->saved_data["tokens"].toInt(),
                                 ctx->saved_data["causal"].toBool()};
    const ContextParallel& cp = SavedValue<ContextParallel>(*ctx);
    const Ring ring(shape, cp);
    BackwardRank rank(gradients[0].contiguous(), saved[0], saved[1], saved[2],
                      {saved[3], saved[4]}, ring, cp);
    RunRingBackward(ring.steps(), rank);
    BlockGradients d = rank.TakeResult();
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
