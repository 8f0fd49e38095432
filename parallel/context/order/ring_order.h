// When a rank of ring attention sends, receives and attends. RingAttention
// executes this order, and //analysis/plan times it.
#ifndef RANKWISE_PARALLEL_CONTEXT_ORDER_RING_ORDER_H_
#define RANKWISE_PARALLEL_CONTEXT_ORDER_RING_ORDER_H_

namespace rankwise {

// One rank, which attends to its own keys and values in step 0 and to those of
// another rank in each step after it.
class RingForwardRank {
 public:
  virtual ~RingForwardRank() = default;

  // Sends the keys and values of `step` on, and receives those of the next.
  virtual void StartKeys(int step) = 0;
  // Waits for them.
  virtual void TakeKeys() = 0;
  virtual void Attend(int step) = 0;
};

// Attend computes gradients. Those of a rank's keys and values follow these
// around the ring, a step behind, and reach that rank after the last step.
class RingBackwardRank : public RingForwardRank {
 public:
  // Adds this rank's part of `step` to the sums, which are zero in step 0.
  virtual void AddGradients(int step) = 0;
  virtual void StartGradients(int step) = 0;
  virtual void TakeGradients() = 0;
};

void RunRingForward(int steps, RingForwardRank& rank);
void RunRingBackward(int steps, RingBackwardRank& rank);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_ORDER_RING_ORDER_H_
