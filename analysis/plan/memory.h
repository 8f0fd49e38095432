// What a rank holds (docs/memory.md).
#ifndef RANKWISE_ANALYSIS_PLAN_MEMORY_H_
#define RANKWISE_ANALYSIS_PLAN_MEMORY_H_

#include <vector>

#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "analysis/plan/work.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/sharded/order/unit_bytes.h"

namespace rankwise::plan {

// Bytes, the parts of records/record.h's MemoryParts.
struct Memory {
  double parameters = 0, gradients = 0, optimizer = 0;
  double unsharded = 0;  // buffers of ZeRO
  double activations = 0;

  double state() const { return parameters + gradients + optimizer; }
  double sum() const { return state() + unsharded + activations; }
};

// Parameters, gradients and the optimizer's state of a rank with parameters of
// `size` (Rajbhandari et al. 2020, "ZeRO", sections 3.1 and 5).
Memory StateMemory(const UnitSize& size, const Layout& layout,
                   const Engine& engine);

// The same and the rest, of each rank along pp. `schedule` is the layout's,
// `cut` its stages. Without communication in it, messages are left out.
std::vector<Memory> RankMemory(const Model& model, const Layout& layout,
                               const Engine& engine, const LayerWork& work,
                               const std::vector<Stage>& cut,
                               const Schedule& schedule);

// No more than the fullest rank takes, whatever the schedule's order: to leave
// out layouts that cannot fit.
double LeastMemory(const Model& model, const Layout& layout,
                   const Engine& engine, const LayerWork& work,
                   const std::vector<Stage>& cut);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_MEMORY_H_
