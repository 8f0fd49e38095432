// Attention to a block of all keys, and what is needed to merge blocks.
#ifndef RANKWISE_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_
#define RANKWISE_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_

#include "torch/types.h"

namespace rankwise {

struct BlockAttention {
  torch::Tensor out;  // [B, heads, rows, features]
  // Of each row's scaled scores, [B, heads, rows]: fp32, or fp64 for fp64.
  torch::Tensor log_sum_exp;
};

struct BlockGradients {
  torch::Tensor q, k, v;
};

// softmax(q k^T / sqrt(features)) v of q [B, heads, rows, features], k and v
// [B, heads, keys, features], whose features are contiguous. `causal`: row i
// attends to keys 0 .. i. No part of the graph. By ATen's flash kernels where
// they can run, else (on CUDA in fp32 and fp64, and with features above 256 or
// no multiple of 8) by products.
BlockAttention AttendToBlock(const torch::Tensor& q, const torch::Tensor& k,
                             const torch::Tensor& v, bool causal);

// What this block adds to the gradients, where `whole` is the attention of the
// rows to all blocks and `gradient` that of whole.out (Dao et al. 2022,
// "FlashAttention", appendix B.4).
BlockGradients AttendToBlockBackward(const torch::Tensor& gradient,
                                     const torch::Tensor& q,
                                     const torch::Tensor& k,
                                     const torch::Tensor& v,
                                     const BlockAttention& whole, bool causal);

// The same anywhere, by matrix products that hold all scores; results are of
// the type of log_sum_exp.
BlockAttention AttendByProducts(const torch::Tensor& q, const torch::Tensor& k,
                                const torch::Tensor& v, bool causal);
BlockGradients AttendByProductsBackward(const torch::Tensor& gradient,
                                        const torch::Tensor& q,
                                        const torch::Tensor& k,
                                        const torch::Tensor& v,
                                        const BlockAttention& whole,
                                        bool causal);

// Adds a block to what `whole` is of the blocks so far, in place; whole.out is
// of the type of log_sum_exp.
void MergeBlock(const BlockAttention& block, const BlockAttention& whole);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_
