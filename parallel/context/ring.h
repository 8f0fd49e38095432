// Ring attention (Liu et al. 2023, "Ring Attention with Blockwise Transformers
// for Near-Infinite Context"), with zig-zag slices where it is causal.
#ifndef RANKWISE_PARALLEL_CONTEXT_RING_H_
#define RANKWISE_PARALLEL_CONTEXT_RING_H_

#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

// ContextAttention in a group of several ranks. Each step a rank passes on the
// keys and values that it attends to. It sends, of B * heads * features numbers
// per token:
//   forward   2 * (tokens - the next rank's), in the type of k and v
//   backward  the same again, and 2 * tokens in fp32 (fp64 for fp64): the sums
//             of gradients, on their way to the keys' owner
torch::Tensor RingAttention(const torch::Tensor& q, const torch::Tensor& k,
                            const torch::Tensor& v, const SequenceShape& shape,
                            const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_RING_H_
