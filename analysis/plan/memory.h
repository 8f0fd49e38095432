// Memory of a rank (docs/memory.md).
#ifndef RANKWISE_ANALYSIS_PLAN_MEMORY_H_
#define RANKWISE_ANALYSIS_PLAN_MEMORY_H_

#include <vector>

#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "analysis/plan/work.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/sharded/order/unit_bytes.h"

namespace rankwise::plan {

// Bytes of the parts of MemoryParts (records/record.h).
struct Memory {
  double parameters = 0, gradients = 0, optimizer = 0;
  double unsharded = 0;  // ZeRO's buffers
  double activations = 0;

  double state() const { return parameters + gradients + optimizer; }
  double sum() const { return state() + unsharded + activations; }
};

// Returns parameters, gradients and optimizer state of a rank with parameters
// of `size` (Rajbhandari et al. 2020, "ZeRO", sections 3.1 and 5).
Memory StateMemory(const UnitSize& size, const Layout& layout,
                   const Engine& engine);

// Returns the memory of each rank along pp. `schedule` is the layout's, `cut`
// its stages. If the schedule has no communication, excludes messages.
std::vector<Memory> RankMemory(const Model& model, const Layout& layout,
                               const Engine& engine, const LayerWork& work,
                               const std::vector<Stage>& cut,
                               const Schedule& schedule);

// Returns a lower bound of the fullest rank's memory in any schedule, to
// exclude layouts that cannot fit.
double LeastMemory(const Model& model, const Layout& layout,
                   const Engine& engine, const LayerWork& work,
                   const std::vector<Stage>& cut);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_MEMORY_H_
