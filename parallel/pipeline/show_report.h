// What `show` prints.
#ifndef RANKWISE_PARALLEL_PIPELINE_SHOW_REPORT_H_
#define RANKWISE_PARALLEL_PIPELINE_SHOW_REPORT_H_

#include <string>

#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/validate.h"

namespace rankwise {

// `costs` is of one stage for all, and of what the timeline was simulated with;
// `facts` is Validate's. The drawing is at most `width` columns wide.
std::string ShowReport(const Schedule& schedule, const SimulationCosts& costs,
                       const Timeline& timeline, const ScheduleFacts& facts,
                       int width);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SHOW_REPORT_H_
