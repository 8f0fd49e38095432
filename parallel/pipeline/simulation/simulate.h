// Predicted durations of a schedule, simulated without devices; the bubbles of
// simulated or measured timelines; and the papers' closed forms for comparison.
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

// The time of an action, simulated or measured.
struct Span {
  Action action;
  double start_seconds = 0;  // since a time that all ranks share
  double end_seconds = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> ranks;  // [num_ranks], each sorted by start
};

// A rank's computation; communication spans are ignored.
struct Extent {
  // From the first start to the last end; infinite without computation.
  double start_seconds = std::numeric_limits<double>::infinity();
  double end_seconds = -std::numeric_limits<double>::infinity();
  double forward_seconds = 0, backward_seconds = 0;  // in F, and in B, I and W
  // Seconds counted more than once because several actions overlap: stages of
  // one rank on an accelerator.
  double overlapped_seconds = 0;

  double seconds() const {
    return end_seconds < start_seconds ? 0 : end_seconds - start_seconds;
  }
  // Returns the seconds in which the rank computed anything.
  double busy_seconds() const {
    return forward_seconds + backward_seconds - overlapped_seconds;
  }
};

// `spans` must be sorted by start.
Extent ExtentOf(const std::vector<Span>& spans);

// There are two definitions of the bubble, and papers differ in which they use.
struct Bubbles {
  // Idle share of a rank's time from its first action's start to its last one's
  // end; mean over ranks.
  double span = 0;
  // Idle share from the first start on any rank to the last end on any, as with
  // a barrier after each step; mean over ranks.
  double wall = 0;
  std::vector<double> span_per_rank, wall_per_rank;
  double wall_seconds = 0;           // from first start to last end
  std::vector<double> busy_seconds;  // per rank
};

// Counts computation only; communication spans are ignored. A timeline without
// computation has bubbles of 0.
Bubbles MeasureBubbles(const Timeline& timeline);

// Ignores communication actions: messages follow from the computation; those
// with a duration appear in the timeline as sends. Takes linear time in the
// number of actions. Returns Validate's errors, and InvalidArgument for costs
// that do not fit.
absl::StatusOr<Timeline> Simulate(const Schedule& schedule,
                                  const SimulationCosts& costs);

// Adds a send after every action of `compute` whose result another rank needs,
// and the matching receive as early in that rank's list as the order of sends
// between the two ranks allows, so that receives overlap computation. Two ranks
// issue their messages in the same order. Stages on the same rank pass values
// in memory, without messages. Returns Validate's errors.
absl::StatusOr<Schedule> AddCommunication(const Schedule& compute);

// Closed forms for a schedule whose stages all cost the same and whose messages
// take no time; unset if unknown.
struct ScheduleFormulas {
  std::optional<double> span_bubble;  // shares, as in Bubbles
  std::optional<double> wall_bubble;
  std::string wall_text;  // the wall bubble's formula: "(p-1)/(m+p-1)"
  // Maximum over ranks, in micro-batches; one stage's activations are 1/v.
  std::optional<double> peak_activations;
  // The paper's estimate of the largest wall-clock idle time of any rank, if
  // the paper states it for costs without a closed form here.
  std::optional<double> paper_idle_seconds = {};
  std::string paper_idle_text = {};
};

// `shape.chunks` must be set, and backward_seconds must be the sum of its
// halves; `overlap` as in SimulationCosts. Names that are not in
// ScheduleNames() have no formulas.
ScheduleFormulas FormulasOf(const std::string& name, const ScheduleShape& shape,
                            const StageCosts& costs, double overlap = 0);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_SIMULATE_H_
