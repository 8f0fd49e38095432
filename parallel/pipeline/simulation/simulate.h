// What a schedule would take: the other half of the engine, which needs no
// devices; the bubbles of what was simulated or measured; and the closed forms
// in the papers to compare with.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/pipeline/schedule/costs.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// When an action ran, simulated or measured.
struct Span {
  Action action;
  double start_seconds = 0;  // since a moment that all ranks share
  double end_seconds = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> ranks;  // [num_ranks], each in order of start
};

// A rank's computation; communication spans are passed over.
struct Extent {
  // From the first start to the last end; infinite where there is none.
  double start_seconds = std::numeric_limits<double>::infinity();
  double end_seconds = -std::numeric_limits<double>::infinity();
  double forward_seconds = 0, backward_seconds = 0;  // in F, and in B, I and W
  // Of these, what was spent in several actions at a time: stages of one rank
  // that overlap on an accelerator.
  double overlapped_seconds = 0;

  double seconds() const {
    return end_seconds < start_seconds ? 0 : end_seconds - start_seconds;
  }
  // In which the rank computed anything.
  double busy_seconds() const {
    return forward_seconds + backward_seconds - overlapped_seconds;
  }
};

// `spans` are in order of start.
Extent ExtentOf(const std::vector<Span>& spans);

// Two bubbles exist, and papers differ in which they mean.
struct Bubbles {
  // Share of a rank's time from its first action's start to its last one's end
  // in which it computes nothing; mean over ranks.
  double span = 0;
  // The same from the first start on any rank to the last end on any, as where
  // a barrier closes each step; mean over ranks.
  double wall = 0;
  std::vector<double> span_per_rank, wall_per_rank;
  double wall_seconds = 0;           // from first start to last end
  std::vector<double> busy_seconds;  // per rank
};

// Counts computation only; communication spans are passed over. A timeline
// without computation has bubbles of 0.
Bubbles MeasureBubbles(const Timeline& timeline);

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
  // Where a paper states the bubble for costs without a closed form here: its
  // estimate of what the rank that idles most does by the wall clock.
  std::optional<double> paper_idle_seconds = {};
  std::string paper_idle_text = {};
};

// `shape.chunks` must be set, and backward_seconds be the sum of its halves;
// `overlap` as in SimulationCosts. Names that are not in ScheduleNames() have
// no formulas.
ScheduleFormulas FormulasOf(const std::string& name, const ScheduleShape& shape,
                            const StageCosts& costs, double overlap = 0);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_
