// What a schedule would take: the other half of the engine, which needs no
// devices; and the closed forms in the papers to compare with (formulas.cc).
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/pipeline/schedule/actions.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/timeline.h"

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
  LinkCosts link;
};

// Ignores communication actions: messages follow from the computation; those
// that take time are in the timeline as sends. Takes time linear in the number
// of actions. Fails as Validate does, and with InvalidArgument for costs that
// do not fit.
absl::StatusOr<Timeline> Simulate(const Schedule& schedule,
                                  const SimulationCosts& costs);

// `compute` with a send after every action whose result another rank needs, and
// the matching receive as early in that rank's list as the order of sends
// between the two ranks allows, so that receives overlap computation. Two ranks
// issue what passes between them in the same order. Stages on the same rank
// hand over in memory and get neither. Fails as Validate does.
absl::StatusOr<Schedule> AddCommunication(const Schedule& compute);

// What is known of a schedule whose stages all cost the same and whose messages
// take no time. Empty where no closed form is known.
struct ScheduleFormulas {
  std::optional<double> span_bubble;  // shares, as in Bubbles
  std::optional<double> wall_bubble;
  std::string wall_text;  // the wall bubble's formula: "(p-1)/(m+p-1)"
  // Of the rank that keeps most, in whole micro-batches: one stage's
  // activations count as a share of 1/v.
  std::optional<double> peak_activations;
};

// `shape.chunks` must be set, and backward_seconds be the sum of its halves.
// Names that are not in ScheduleNames() have no formulas.
ScheduleFormulas FormulasOf(const std::string& name, const ScheduleShape& shape,
                            const StageCosts& costs);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_
