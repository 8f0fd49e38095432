#include "parallel/context/order/ring_order.h"

namespace rankwise {

void RunRingForward(int steps, RingForwardRank& rank) {
  for (int step = 0; step < steps; ++step) {
    const bool is_last = step + 1 == steps;
    if (!is_last) rank.StartKeys(step);
    rank.Attend(step);
    if (!is_last) rank.TakeKeys();
  }
}

void RunRingBackward(int steps, RingBackwardRank& rank) {
  for (int step = 0; step < steps; ++step) {
    const bool is_last = step + 1 == steps;
    if (!is_last) rank.StartKeys(step);
    rank.Attend(step);
    if (step > 0) rank.TakeGradients();
    rank.AddGradients(step);
    rank.StartGradients(step);
    if (!is_last) rank.TakeKeys();
  }
  rank.TakeGradients();
}

}  // namespace rankwise
