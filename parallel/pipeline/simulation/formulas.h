// The closed forms in the papers, to lay beside what is simulated and measured.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_FORMULAS_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_FORMULAS_H_

#include <optional>
#include <string>

#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {

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

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_FORMULAS_H_
