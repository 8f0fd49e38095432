// Ring attention (Liu et al. 2023, "Ring Attention with Blockwise Transformers
// for Near-Infinite Context"), with zig-zag slices where it is causal.
#ifndef RANKWISE_PARALLEL_CONTEXT_RING_H_
#define RANKWISE_PARALLEL_CONTEXT_RING_H_

#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

// ContextAttention in a group of several ranks. Forward, a rank sends the
// keys and values of all ranks but the next, one message per step, while it
// attends to those it has; backward the same once more and, in fp32 (fp64 for
// fp64), the sums so far of the gradients of every rank's.
torch::Tensor RingAttention(const torch::Tensor& q, const torch::Tensor& k,
                            const torch::Tensor& v, const SequenceShape& shape,
                            const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_RING_H_
