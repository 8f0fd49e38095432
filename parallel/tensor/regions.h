// Tensor parallelism: a group of ranks computes each layer together, every rank
// with its part of the weights (Shoeybi et al. 2019, "Megatron-LM", section 3).
// This file has the shared configuration and the differentiable functions that
// convert activations between replicated and divided. All of them are
// collectives of the group, forward and backward; in a group of one rank they
// return their argument.
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
  // Divides the tokens, too, between the divided layers, so that norms and
  // dropout are also divided: an all-gather and a reduce-scatter replace each
  // all-reduce (Korthikanti et al. 2022, section 4.2.2).
  bool sequence_parallel = false;
  // Number of pieces along the tokens into which a divided layer's product is
  // cut, to exchange one piece while multiplying the next; 1: no overlap.
  int overlap_pieces = 1;
  // Sums exposed communication; must outlive all uses; may be nullptr.
  ExposedComm* exposed = nullptr;

  int size() const { return group.size(); }
  int place() const { return group.place(); }
};

// Returns InvalidArgument unless `ranks` divides `size`, and lists the numbers
// of ranks that do: "tp=3: 4 attention heads do not divide among 3 ranks; 1, 2
// or 4 do".
absl::Status CheckDivides(const std::string& what, int64_t size, int ranks);

// Returns the rows of one part of `size` rows: ceil(size / ranks). The last
// ranks' parts are padded with zeros if they have fewer.
constexpr int64_t PartSize(int64_t size, int ranks) {
  return (size + ranks - 1) / ranks;
}
inline int64_t PartSize(int64_t size, const TensorParallel& tp) {
  return PartSize(size, tp.size());
}

// Returns this rank's part of `whole` along `dim`, contiguous and detached: the
// layer's share of weights that were drawn whole.
torch::Tensor PartOf(const torch::Tensor& whole, int64_t dim,
                     const TensorParallel& tp);

// The regions. Each comment describes forward, then backward.

// Forward: the sum over the ranks. Backward: the unchanged gradient. For the
// end of divided layers (g in Shoeybi et al., figure 3).
torch::Tensor ReduceFromRanks(const torch::Tensor& x, const TensorParallel& tp);

// Forward: this rank's part along `dim`. Backward: the gathered gradients of
// all parts. For dividing activations that every rank has computed.
torch::Tensor ScatterToRanks(const torch::Tensor& x, int64_t dim,
                             const TensorParallel& tp);

// Forward: all parts along `dim`, `size` in total. Backward: this rank's part
// of the gradient, which must be equal on all ranks. For the end of divided
// activations, where every rank computes the rest itself.
torch::Tensor GatherFromRanks(const torch::Tensor& x, int64_t dim, int64_t size,
                              const TensorParallel& tp);

// Forward: all parts along `dim`, `size` in total. Backward: this rank's part
// of the sum of the ranks' gradients. For divided activations of which each
// rank uses a different selection.
torch::Tensor ShareAmongRanks(const torch::Tensor& x, int64_t dim, int64_t size,
                              const TensorParallel& tp);

// Forward: this rank's part along `dim` of the sum over the ranks. Backward:
// the gathered gradients of all parts. For the end of divided layers under
// sequence parallelism (g bar in Korthikanti et al., figure 5).
torch::Tensor ReduceScatterFromRanks(const torch::Tensor& x, int64_t dim,
                                     const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_REGIONS_H_
