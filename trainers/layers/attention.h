#ifndef RANKWISE_TRAINERS_LAYERS_ATTENTION_H_
#define RANKWISE_TRAINERS_LAYERS_ATTENTION_H_

#include <torch/types.h>

#include <cstdint>

namespace rankwise {

// Whether SelfAttention can take `qkv`: contiguous, on a CPU that has products
// of its type, fp32 or bf16, which is the one that autocast, if enabled, asks
// for.
bool HasSelfAttention(const torch::Tensor& qkv, int64_t heads);

// Attention of every token to all, if `causal` to those up to itself, of its
// sequence: [B, tokens, 3 * heads * features], of each token its queries, keys
// and values, to [B, tokens, heads * features]. What
// at::scaled_dot_product_attention computes: softmax in fp32, weights and their
// gradients rounded to the type of qkv, sums of products in fp32.
//
// Unlike its fused kernel for CPUs it takes queries, keys and values where the
// product that makes them leaves them, and in backward sums no gradient twice:
// rows of scores, and of their gradients columns, a tile at a time (the loops
// of Dao et al. 2022, "FlashAttention", with whole rows and columns instead of
// blocks). Keeps qkv, the output and the logarithm of each row's sum. Cannot be
// differentiated twice.
torch::Tensor SelfAttention(const torch::Tensor& qkv, int64_t heads,
                            bool causal);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_ATTENTION_H_
