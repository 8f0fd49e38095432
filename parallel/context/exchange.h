// Communication between the ranks of a context-parallel group.
#ifndef RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_
#define RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "parallel/comm/exchange.h"
#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

// Sends one tensor to the next rank of the ring while receiving one from the
// previous rank; one pair at a time. All ranks must Start in the same order.
class RingShift {
 public:
  // `cp` must outlive the object. `tag` must differ between concurrent shifts.
  RingShift(const ContextParallel& cp, int tag) : cp_(cp), tag_(tag) {}

  // Both must be contiguous and must not be written to until Take.
  void Start(const torch::Tensor& sent, const torch::Tensor& received);

  // Blocks until both transfers complete; returns `received`.
  torch::Tensor Take();

 private:
  const ContextParallel& cp_;
  const int tag_;
  std::vector<Exchange> in_flight_;
};

// Exchanges x [sum of `sends`], which holds sends[i] elements for rank i of the
// group. Returns receives[i] elements from each rank i, in order.
// Differentiable: gradients take the opposite way.
torch::Tensor AllToAll(const torch::Tensor& x,
                       const std::vector<int64_t>& sends,
                       const std::vector<int64_t>& receives,
                       const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_
