// What the ranks of a context-parallel group send each other.
#ifndef RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_
#define RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "parallel/comm/exchange.h"
#include "parallel/context/context_parallel.h"
#include "torch/types.h"

namespace rankwise {

// Tensors that go to the next rank of the ring while others come from the
// previous one; one pair at a time. The ranks start theirs in the same order.
class RingShift {
 public:
  // Outlived by `cp`. `tag`: differs where two are in flight at once.
  RingShift(const ContextParallel& cp, int tag) : cp_(cp), tag_(tag) {}

  // Both contiguous, and not to be written to until Take.
  void Start(const torch::Tensor& sent, const torch::Tensor& received);

  // `received`, when it has arrived and `sent` has left.
  torch::Tensor Take();

 private:
  const ContextParallel& cp_;
  const int tag_;
  std::vector<Exchange> in_flight_;
};

// x [sum of `sends`] holds sends[i] elements for the rank in place i; returns
// receives[i] elements from each, in order of place. Differentiable: gradients
// go the opposite way.
torch::Tensor AllToAll(const torch::Tensor& x,
                       const std::vector<int64_t>& sends,
                       const std::vector<int64_t>& receives,
                       const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_
