#include "parallel/context/block_attention.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

#include "ATen/TensorOperators.h"
#include "ATen/ops/_scaled_dot_product_flash_attention.h"
#include "ATen/ops/_scaled_dot_product_flash_attention_backward.h"
#include "ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h"
#include "ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/logaddexp.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/sigmoid.h"

namespace rankwise {
namespace {

// Returns whether ATen has flash kernels for q. They also accept fewer key and
// value heads than query heads.
bool RunsFlash(const torch::Tensor& q) {
  constexpr int64_t kMultiple = 8, kMost = 256;
  if (q.is_cpu()) return true;
  const int64_t features = q.size(3);
  const bool is_half = q.element_size() == 2;
  return is_half && features % kMultiple == 0 && features <= kMost;
}

// Returns whether flash kernels sum the gradients of a key and value head over
// its query heads in fp32 or wider; those of CPUs sum in the type of q.
bool SumsHeadsWidely(const torch::Tensor& q) {
  return RunsFlash(q) && (!q.is_cpu() || q.element_size() > 2);
}

torch::ScalarType SumType(const torch::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

double Scale(const torch::Tensor& q) {
  return 1 / std::sqrt(static_cast<double>(q.size(3)));
}

// Returns x [B, kv_heads, keys, features] with each head repeated for its query
// heads, [B, heads, keys, features].
torch::Tensor RepeatHeads(const torch::Tensor& x, int64_t heads) {
  return x.unsqueeze(2)
      .expand({-1, -1, heads / x.size(1), -1, -1})
      .flatten(1, 2);
}

// Backward of RepeatHeads.
torch::Tensor SumHeads(const torch::Tensor& gradient, int64_t kv_heads) {
  return gradient.size(1) == kv_heads
             ? gradient
             : gradient.unflatten(1, {kv_heads, -1}).sum(/*dim=*/2);
}

// Returns the scaled scores, [B, heads, rows, keys].
torch::Tensor Scores(const torch::Tensor& q, const torch::Tensor& k,
                     bool causal) {
  torch::Tensor scores = at::matmul(q, k.transpose(2, 3)).mul_(Scale(q));
  if (!causal) return scores;
  const torch::Tensor later =
      at::ones({q.size(2), k.size(2)}, scores.options().dtype(at::kBool))
          .triu_(/*diagonal=*/1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

// Without dropout the kernel does not read the generator's state; with
// sequences of equal length it does not read their start offsets.
BlockGradients CudaFlashBackward(const torch::Tensor& gradient,
                                 const torch::Tensor& q, const torch::Tensor& k,
                                 const torch::Tensor& v,
                                 const BlockAttention& whole, bool causal) {
  const torch::Tensor no_starts;
  const torch::Tensor no_state = at::empty({2}, q.options().dtype(at::kLong));
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      gradient, q, k, v, whole.out, whole.log_sum_exp.contiguous(), no_starts,
      no_starts, /*max_q=*/q.size(2), /*max_k=*/k.size(2), /*dropout_p=*/0.0,
      causal, no_state, no_state);
  return {dq, dk, dv};
}

}  // namespace

BlockAttention AttendByProducts(const torch::Tensor& q, const torch::Tensor& k,
                                const torch::Tensor& v, bool causal) {
  const torch::ScalarType type = SumType(q);
  const int64_t heads = q.size(1);
  torch::Tensor scores =
      Scores(q.to(type), RepeatHeads(k.to(type), heads), causal);
  const torch::Tensor log_sum_exp = scores.logsumexp(/*dim=*/3);
  const torch::Tensor weights = scores.sub_(log_sum_exp.unsqueeze(3)).exp_();
  return {at::matmul(weights, RepeatHeads(v.to(type), heads)), log_sum_exp};
}

BlockGradients AttendByProductsBackward(const torch::Tensor& gradient,
                                        const torch::Tensor& q,
                                        const torch::Tensor& k,
                                        const torch::Tensor& v,
                                        const BlockAttention& whole,
                                        bool causal) {
  const torch::ScalarType type = SumType(q);
  const int64_t heads = q.size(1), kv_heads = k.size(1);
  const torch::Tensor dout = gradient.to(type), wide_q = q.to(type),
                      wide_k = RepeatHeads(k.to(type), heads),
                      wide_v = RepeatHeads(v.to(type), heads);
  const torch::Tensor weights = Scores(wide_q, wide_k, causal)
                                    .sub_(whole.log_sum_exp.unsqueeze(3))
                                    .exp_();
  const torch::Tensor mean =
      (dout * whole.out).sum(/*dim=*/3, /*keepdim=*/true);
  const torch::Tensor dscores = at::matmul(dout, wide_v.transpose(2, 3))
                                    .sub_(mean)
                                    .mul_(weights)
                                    .mul_(Scale(q));
  return {at::matmul(dscores, wide_k),
          SumHeads(at::matmul(dscores.transpose(2, 3), wide_q), kv_heads),
          SumHeads(at::matmul(weights.transpose(2, 3), dout), kv_heads)};
}

BlockAttention AttendToBlock(const torch::Tensor& q, const torch::Tensor& k,
                             const torch::Tensor& v, bool causal) {
  if (!RunsFlash(q)) return AttendByProducts(q, k, v, causal);
  if (q.is_cpu()) {
    const auto [out, log_sum_exp] =
        at::_scaled_dot_product_flash_attention_for_cpu(
            q, k, v, /*dropout_p=*/0.0, causal);
    return {out, log_sum_exp};
  }
  const auto results = at::_scaled_dot_product_flash_attention(
      q, k, v, /*dropout_p=*/0.0, causal);
  return {std::get<0>(results), std::get<1>(results)};
}

BlockGradients AttendToBlockBackward(const torch::Tensor& gradient,
                                     const torch::Tensor& q,
                                     const torch::Tensor& k,
                                     const torch::Tensor& v,
                                     const BlockAttention& whole, bool causal) {
  if (!RunsFlash(q))
    return AttendByProductsBackward(gradient, q, k, v, whole, causal);
  if (!q.is_cpu()) return CudaFlashBackward(gradient, q, k, v, whole, causal);
  const int64_t kv_heads = k.size(1);
  const int64_t read = SumsHeadsWidely(q) ? kv_heads : q.size(1);
  const auto [dq, dk, dv] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          gradient, q, RepeatHeads(k, read), RepeatHeads(v, read), whole.out,
          whole.log_sum_exp, /*dropout_p=*/0.0, causal);
  return {dq, SumHeads(dk, kv_heads), SumHeads(dv, kv_heads)};
}

torch::Tensor AttendToAll(const torch::Tensor& q, const torch::Tensor& k,
                          const torch::Tensor& v, double dropout, bool causal) {
  const bool is_grouped = q.size(1) != k.size(1);
  if (!is_grouped || SumsHeadsWidely(q)) {
    return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, dropout,
                                            causal, /*scale=*/{}, is_grouped);
  }
  // CUDA's other kernels that do not materialise the scores require equal
  // numbers of heads.
  return at::scaled_dot_product_attention(q, RepeatHeads(k, q.size(1)),
                                          RepeatHeads(v, q.size(1)),
                                          /*attn_mask=*/{}, dropout, causal);
}

void MergeBlock(const BlockAttention& block, const BlockAttention& whole) {
  const torch::Tensor share =
      at::sigmoid(block.log_sum_exp - whole.log_sum_exp).unsqueeze(3);
  whole.out.lerp_(block.out.to(whole.out.scalar_type()), share);
  whole.log_sum_exp.copy_(at::logaddexp(whole.log_sum_exp, block.log_sum_exp));
}

}  // namespace rankwise
