// When each action of a schedule ran, simulated or measured, and the bubbles in
// it.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_TIMELINE_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_TIMELINE_H_

#include <limits>
#include <vector>

#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

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

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_TIMELINE_H_
