// Attention to one block of the keys, and the merging of blocks. k and v may
// have fewer heads than q: query head h uses head h / (heads / kv_heads)
// (Ainslie et al. 2023, "GQA").
#ifndef RANKWISE_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_
#define RANKWISE_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_

#include "torch/types.h"

namespace rankwise {

struct BlockAttention {
  torch::Tensor out;  // [B, heads, rows, features]
  // Log-sum-exp of scaled scores by row, [B, heads, rows]: fp32; fp64 for fp64.
  torch::Tensor log_sum_exp;
};

struct BlockGradients {
  torch::Tensor q, k, v;
};

// Returns softmax(q k^T / sqrt(features)) v of q [B, heads, rows, features], k
// and v [B, kv_heads, keys, features], whose features are contiguous. `causal`:
// row i attends to keys 0 .. i. Not recorded by autograd. Uses ATen's flash
// kernels where available, else matrix products (on CUDA for fp32, fp64, and
// more than 256 features or features that are not a multiple of 8).
BlockAttention AttendToBlock(const torch::Tensor& q, const torch::Tensor& k,
                             const torch::Tensor& v, bool causal);

// Returns this block's contribution to the gradients. `whole` is the attention
// of the rows to all blocks and `gradient` the gradient of whole.out (Dao et
// al. 2022, "FlashAttention", appendix B.4).
BlockGradients AttendToBlockBackward(const torch::Tensor& gradient,
                                     const torch::Tensor& q,
                                     const torch::Tensor& k,
                                     const torch::Tensor& v,
                                     const BlockAttention& whole, bool causal);

// The same functions on any device, by matrix products that materialise all
// scores. Results have the type of log_sum_exp.
BlockAttention AttendByProducts(const torch::Tensor& q, const torch::Tensor& k,
                                const torch::Tensor& v, bool causal);
BlockGradients AttendByProductsBackward(const torch::Tensor& gradient,
                                        const torch::Tensor& q,
                                        const torch::Tensor& k,
                                        const torch::Tensor& v,
                                        const BlockAttention& whole,
                                        bool causal);

// Returns at::scaled_dot_product_attention of q to all keys. Differentiable.
torch::Tensor AttendToAll(const torch::Tensor& q, const torch::Tensor& k,
                          const torch::Tensor& v, double dropout, bool causal);

// Merges a block into `whole`, the attention to the blocks so far, in place.
// whole.out has the type of log_sum_exp.
void MergeBlock(const BlockAttention& block, const BlockAttention& whole);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_
