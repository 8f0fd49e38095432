// Tensor parallelism: a line of ranks computes each layer together, every rank
// with its part of the weights (Shoeybi et al. 2019, "Megatron-LM", section 3).
// Here: what the ranks share, and the places where activations change between
// whole and divided, as functions that autograd differentiates. All of them are
// collective along the group, forward and backward; with a group of one rank
// they return their argument.
#ifndef RANKWISE_PARALLEL_TENSOR_REGIONS_H_
#define RANKWISE_PARALLEL_TENSOR_REGIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "parallel/comm/exposed_comm.h"
#include "parallel/comm/group.h"
#include "torch/types.h"

namespace rankwise {

struct TensorParallel {
  Group group = {};
  // Between the divided layers every rank keeps its part of the tokens and not
  // all of them, so that norms and dropout are divided, too: an all-gather and
  // a reduce-scatter take the place of each all-reduce (Korthikanti et al.
  // 2022, section 4.2.2).
  bool sequence_parallel = false;
  // Into how many pieces along the tokens a divided layer's product is cut, so
  // that one piece is exchanged while the next is multiplied; 1: no overlap.
  int overlap_pieces = 1;
  // Where waiting is added up, which outlives all use; null: it is not counted.
  ExposedComm* exposed = nullptr;

  int size() const { return group.size(); }
  int place() const { return group.place(); }
};

// InvalidArgument unless `ranks` divides `size`, with the numbers of ranks that
// do: "--tp=3: 4 attention heads do not divide among 3 ranks; 1, 2 or 4 do".
absl::Status CheckDivides(const std::string& what, int64_t size, int ranks);

// Of `size` rows over `ranks`, or over the group: ceil(size / ranks). Where
// that is more than there are, the last ranks' parts are padded with zeros.
constexpr int64_t PartSize(int64_t size, int ranks) {
  return (size + ranks - 1) / ranks;
}
inline int64_t PartSize(int64_t size, const TensorParallel& tp) {
  return PartSize(size, tp.size());
}

// This rank's part of `whole` along `dim`, contiguous and without a gradient:
// what a layer keeps of weights that were drawn whole.
torch::Tensor PartOf(const torch::Tensor& whole, int64_t dim,
                     const TensorParallel& tp);

// The regions: what each does forward, and in backward to the gradient.

// The sum over the ranks; the gradient itself. Divided layers end (g in Shoeybi
// et al., figure 3).
torch::Tensor ReduceFromRanks(const torch::Tensor& x, const TensorParallel& tp);

// This rank's part along `dim`; the gathered gradients of all parts. Whole
// activations that every rank has computed are divided.
torch::Tensor ScatterToRanks(const torch::Tensor& x, int64_t dim,
                             const TensorParallel& tp);

// All parts along `dim`, `size` in all; this rank's part of the gradient, which
// must be the same on all ranks. Divided activations end where every rank
// computes the rest itself.
torch::Tensor GatherFromRanks(const torch::Tensor& x, int64_t dim, int64_t size,
                              const TensorParallel& tp);

// This rank's part along `dim` of the sum over the ranks; the gathered
// gradients of all parts. Divided layers end under sequence parallelism (g bar
// in Korthikanti et al., figure 5).
torch::Tensor ReduceScatterFromRanks(const torch::Tensor& x, int64_t dim,
                                     const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_REGIONS_H_
