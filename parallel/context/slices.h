// Which tokens of a sequence each rank has, as runs of consecutive ones: what
// ContextPositions says, for those that move tensors.
#ifndef RANKWISE_PARALLEL_CONTEXT_SLICES_H_
#define RANKWISE_PARALLEL_CONTEXT_SLICES_H_

#include <cstdint>
#include <vector>

#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

struct TokenRun {
  int64_t start = 0;  // within the sequence
  int64_t tokens = 0;
};

// Those of the rank in `place` of `ranks`, in order.
std::vector<TokenRun> TokenRuns(const SequenceShape& shape, int ranks,
                                int place);

// How many tokens they are.
int64_t TokensAt(const SequenceShape& shape, int ranks, int place);

// The runs of x, which has the whole sequence along `dim`. One run is a view.
torch::Tensor TakeRuns(const torch::Tensor& x, int64_t dim,
                       const std::vector<TokenRun>& runs);

// The whole sequence along `dim` from the ranks' tokens, by place.
torch::Tensor JoinRuns(const std::vector<torch::Tensor>& by_place, int64_t dim,
                       const SequenceShape& shape);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_SLICES_H_
