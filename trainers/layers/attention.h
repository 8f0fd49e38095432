#ifndef RANKWISE_TRAINERS_LAYERS_ATTENTION_H_
#define RANKWISE_TRAINERS_LAYERS_ATTENTION_H_

#include <torch/types.h>

#include <cstdint>

namespace rankwise {

// Returns whether SelfAttention accepts `qkv`: contiguous, with an even number
// of features per head and query heads in groups of equal size, of autocast's
// type if autocast is on, and on a CPU with matrix products of its type (fp32
// or bf16).
bool HasSelfAttention(const torch::Tensor& qkv, int64_t heads,
                      int64_t kv_heads);

// Attention of every token to all tokens of its sequence, or if `causal` to
// those up to itself: [B, tokens, (heads + 2 * kv_heads) * features], each
// token's queries, keys and values, to [B, tokens, heads * features]. Query
// head h uses the keys and values of head h / (heads / kv_heads)
// (grouped-query attention, Ainslie et al. 2023, section 2.2). Same arithmetic
// as at::scaled_dot_product_attention: softmax in fp32, weights and their
// gradients rounded to the type of qkv, sums of products in fp32, also over the
// query heads that share keys and values.
//
// Unlike its fused kernel for CPUs, this reads queries, keys and values where
// the product that makes them stores them, and sums no gradient twice in
// backward: it computes rows of scores, and columns of their gradients, a tile
// at a time (the loops of Dao et al. 2022, "FlashAttention", with whole rows
// and columns instead of blocks). Stores qkv, the output and the logarithm of
// each row's sum. Cannot be differentiated twice.
torch::Tensor SelfAttention(const torch::Tensor& qkv, int64_t heads,
                            int64_t kv_heads, bool causal);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_ATTENTION_H_
