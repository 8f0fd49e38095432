// Sequence parallelism by exchanging heads (Jacobs et al. 2023, "DeepSpeed
// Ulysses", section 3).
#ifndef RANKWISE_PARALLEL_CONTEXT_ULYSSES_H_
#define RANKWISE_PARALLEL_CONTEXT_ULYSSES_H_

#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

// ContextAttention in a group of several ranks, among which the query heads and
// the key and value heads are divided.
// Forward runs two all-to-alls, one of q, k and v together and one of the
// result; backward runs the two opposite ones. A rank sends, including its own
// part, in units of B * features elements per token and head:
//   forward   (heads + 2 * kv_heads) * tokens here + heads * tokens / ranks
//   backward  heads * tokens here + (heads + 2 * kv_heads) * tokens / ranks
torch::Tensor UlyssesAttention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v,
                               const SequenceShape& shape, double dropout,
                               const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_ULYSSES_H_
