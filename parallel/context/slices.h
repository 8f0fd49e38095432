// The tokens of each rank as runs of consecutive tokens; equivalent to
// ContextPositions.
#ifndef RANKWISE_PARALLEL_CONTEXT_SLICES_H_
#define RANKWISE_PARALLEL_CONTEXT_SLICES_H_

#include <cstdint>
#include <vector>

#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

struct TokenRun {
  int64_t start = 0;  // in the sequence
  int64_t tokens = 0;
};

// Returns the token runs of the rank with index `place` of `ranks`, in order.
std::vector<TokenRun> TokenRuns(const SequenceShape& shape, int ranks,
                                int place);

// Returns the number of tokens of that rank.
int64_t TokensAt(const SequenceShape& shape, int ranks, int place);

// Concatenates `runs` of x, which has the whole sequence along `dim`. A single
// run is a view.
torch::Tensor TakeRuns(const torch::Tensor& x, int64_t dim,
                       const std::vector<TokenRun>& runs);

// Reassembles the whole sequence along `dim` from the ranks' tokens.
torch::Tensor JoinRuns(const std::vector<torch::Tensor>& by_place, int64_t dim,
                       const SequenceShape& shape);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_SLICES_H_
