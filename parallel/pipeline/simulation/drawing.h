// Timelines for a terminal.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_DRAWING_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_DRAWING_H_

#include <string>

#include "parallel/pipeline/simulation/timeline.h"

namespace rankwise {

// One line per rank, at most `width` columns wide, in which time runs to the
// right, and a line of legend. Shows computation only. Where there is room an
// action is its name, else a character for the last digit of its micro-batch.
// Empty where the timeline is too large to be drawn: more actions on a rank
// than columns, or more than 64 ranks.
std::string DrawTimeline(const Timeline& timeline, int width);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_DRAWING_H_
