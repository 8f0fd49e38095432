// What actions and messages take, as simulations and plans assume it.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_COSTS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_COSTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {

// One micro-batch through one stage.
struct StageCosts {
  double forward_seconds = 1;
  double input_grad_seconds = 1;
  double weight_grad_seconds = 1;
  double backward_seconds = 2;  // of a whole backward
  double output_bytes = 0;      // to the next stage; its gradient is as large
};

// A message takes alpha + bytes * beta from the end of the action that made it;
// messages from one rank to another follow each other. Neither side's
// computation waits for it but the action that needs it.
struct LinkCosts {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
};

struct SimulationCosts {
  std::vector<StageCosts> stages;  // one per stage, or one for all
  LinkCosts link = {};
  // Of the shorter action of an overlapped pair, the share that takes no time
  // of its own: 0 in order, as on a CPU; 1 where the pair takes no longer than
  // its longer action.
  double overlap = 0;
};

// InvalidArgument unless there are costs of one or `num_stages` stages, all
// finite and not negative, and an overlap from 0 to 1.
absl::Status CheckCosts(const SimulationCosts& costs, int num_stages);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_COSTS_H_
