// Ring attention (Liu et al. 2023, "Ring Attention with Blockwise Transformers
// for Near-Infinite Context"), with zig-zag slices for causal sequences.
#ifndef RANKWISE_PARALLEL_CONTEXT_RING_H_
#define RANKWISE_PARALLEL_CONTEXT_RING_H_

#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

// ContextAttention in a group of several ranks. In each step a rank forwards
// the keys and values that it attends to. It sends, in units of B * kv_heads *
// features elements per token:
//   forward   2 * (tokens - the next rank's), in the type of k and v
//   backward  the same again, plus 2 * tokens in fp32 (fp64 for fp64): gradient
//             sums, which travel to the keys' owner
torch::Tensor RingAttention(const torch::Tensor& q, const torch::Tensor& k,
                            const torch::Tensor& v, const SequenceShape& shape,
                            const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_RING_H_
