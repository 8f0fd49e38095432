// The order in which a rank of ring attention sends, receives and attends.
// RingAttention executes it, and //analysis/plan times it.
#ifndef RANKWISE_PARALLEL_CONTEXT_ORDER_RING_ORDER_H_
#define RANKWISE_PARALLEL_CONTEXT_ORDER_RING_ORDER_H_

namespace rankwise {

// One rank, which attends to its own keys and values in step 0 and to those of
// another rank in each later step.
class RingForwardRank {
 public:
  virtual ~RingForwardRank() = default;

  // Starts to send the keys and values of `step` and receive the next ones.
  virtual void StartKeys(int step) = 0;
  // Blocks until they have arrived.
  virtual void TakeKeys() = 0;
  virtual void Attend(int step) = 0;
};

// Attend computes gradients. The gradients of a rank's keys and values follow
// these around the ring one step behind and arrive after the last step.
class RingBackwardRank : public RingForwardRank {
 public:
  // Adds this rank's contribution of `step` to the sums, which start at zero.
  virtual void AddGradients(int step) = 0;
  virtual void StartGradients(int step) = 0;
  virtual void TakeGradients() = 0;
};

void RunRingForward(int steps, RingForwardRank& rank);
void RunRingBackward(int steps, RingBackwardRank& rank);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_ORDER_RING_ORDER_H_
