// A language model's first and last layer with the vocabulary divided among the
// ranks of a group (Shoeybi et al. 2019, section 3). A vocabulary that does not
// divide is padded: the last rank's part has rows that no token uses.
#ifndef RANKWISE_PARALLEL_TENSOR_VOCABULARY_H_
#define RANKWISE_PARALLEL_TENSOR_VOCABULARY_H_

#include <cstdint>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise {

// at::embedding of tokens int64 [B, tokens] with this rank's part of the rows,
// weight [ceil(vocabulary / ranks), features]: [B, tokens, features], or under
// sequence parallelism [B, ceil(tokens / ranks), features]. On several ranks a
// token beyond the vocabulary is not an error, but has features of zero.
torch::Tensor VocabularyParallelEmbedding(const torch::Tensor& tokens,
                                          const torch::Tensor& weight,
                                          const TensorParallel& tp);

// Mean cross-entropy of logits whose last dimension is divided: logits [...,
// ceil(vocabulary / ranks)], target int64 [...], in 0 .. vocabulary - 1.
// Scalar, the same on every rank; computed in fp32, or fp64 for fp64 logits.
// Exchanges three numbers per target, not the logits.
torch::Tensor VocabularyParallelCrossEntropy(const torch::Tensor& logits,
                                             const torch::Tensor& target,
                                             int64_t vocabulary,
                                             const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_VOCABULARY_H_
