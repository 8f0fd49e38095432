// What the ranks of a context-parallel group send each other.
#ifndef RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_
#define RANKWISE_PARALLEL_CONTEXT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "c10/util/intrusive_ptr.h"
#include "parallel/context/context_parallel.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/distributed/c10d/Work.hpp"
#include "torch/types.h"

namespace rankwise {

// Keeps `cp` with an autograd function's other state for its backward.
void SaveContext(torch::autograd::AutogradContext& ctx,
                 const ContextParallel& cp);
ContextParallel SavedContext(torch::autograd::AutogradContext& ctx);

// Tensors that go to the next rank of the ring while others come from the
// previous one; one pair at a time. The ranks start theirs in the same order.
class RingShift {
 public:
  // Outlived by `cp`. `tag`: differs where two are in flight at once.
  RingShift(const ContextParallel& cp, int tag) : cp_(cp), tag_(tag) {}
  // Waits for what is still in flight, after an exception: the other ranks have
  // started their side of it, or are gone.
  ~RingShift();
  RingShift(const RingShift&) = delete;
  RingShift& operator=(const RingShift&) = delete;

  // Both contiguous, and not to be written to until Take.
  void Start(const torch::Tensor& sent, const torch::Tensor& received);

  // `received`, when it has arrived.
  torch::Tensor Take();

 private:
  const ContextParallel& cp_;
  const int tag_;
  torch::Tensor sent_, received_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;  // in flight
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
