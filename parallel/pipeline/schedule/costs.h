// Durations of actions and messages, as assumed by simulations and plans.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_COSTS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_COSTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {

// Costs of one micro-batch in one stage.
struct StageCosts {
  double forward_seconds = 1;
  double input_grad_seconds = 1;
  double weight_grad_seconds = 1;
  double backward_seconds = 2;  // of a fused backward
  double output_bytes = 0;  // to the next stage; its gradient has the same size
};

// A message takes alpha + bytes * beta from the end of the action that made its
// value; messages from one rank to another are serialised. Only the action that
// needs a message waits for it.
struct LinkCosts {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
};

struct SimulationCosts {
  std::vector<StageCosts> stages;  // one per stage, or one for all
  LinkCosts link = {};
  // Share of the shorter action of an overlapped pair that takes no extra time:
  // 0 runs them in order, as on a CPU; 1 makes the pair take as long as its
  // longer action.
  double overlap = 0;
};

// Returns InvalidArgument unless there are costs of one or `num_stages` stages,
// all finite and not negative, and an overlap from 0 to 1.
absl::Status CheckCosts(const SimulationCosts& costs, int num_stages);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_COSTS_H_
