// A language model's first and last layer with the vocabulary divided among the
// ranks of a group (Shoeybi et al. 2019, section 3). A vocabulary that does not
// divide evenly is padded: the last rank's part has rows that no token uses.
#ifndef RANKWISE_PARALLEL_TENSOR_VOCABULARY_H_
#define RANKWISE_PARALLEL_TENSOR_VOCABULARY_H_

#include <cstdint>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise {

// Returns at::embedding of tokens int64 [B, tokens] by this rank's rows of the
// table, weight [ceil(vocabulary / ranks), features]: [B, tokens, features], or
// [B, ceil(tokens / ranks), features] under sequence parallelism. On several
// ranks a token beyond the vocabulary is not an error but yields zeros.
torch::Tensor VocabularyParallelEmbedding(const torch::Tensor& tokens,
                                          const torch::Tensor& weight,
                                          const TensorParallel& tp);

// Returns the mean cross-entropy of logits [..., ceil(vocabulary / ranks)],
// divided along the last dimension, and target int64 [...] in 0 .. vocabulary -
// 1: a scalar, the same on every rank, computed in fp32, or fp64 for fp64
// logits. Exchanges three numbers per target, not the logits.
torch::Tensor VocabularyParallelCrossEntropy(const torch::Tensor& logits,
                                             const torch::Tensor& target,
                                             int64_t vocabulary,
                                             const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_VOCABULARY_H_
