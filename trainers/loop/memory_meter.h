// What a rank's training holds of its memory, by kind, measured as it trains.
#ifndef RANKWISE_TRAINERS_LOOP_MEMORY_METER_H_
#define RANKWISE_TRAINERS_LOOP_MEMORY_METER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "parallel/sharded/order/unit_bytes.h"
#include "records/record.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/observe/memory.h"
#include "trainers/observe/step_log.h"

namespace rankwise {

// Activations are what forward has allocated and not freed as backward begins;
// in a pipeline, as a stage's forward ends, without gradients. Forwards of the
// first two steps count only where there are no more. Not thread-safe; all
// calls on one thread.
class MemoryMeter {
 public:
  // All arguments outlive it. `unsharded` may be null: there is none.
  MemoryMeter(const Worker& worker, const Model& model,
              const Optimizer& optimizer,
              std::function<UnshardedBytes()> unsharded);

  // For a step's clock.
  void Enter(Phase phase);
  // Within Phase::kSchedule, after a stage's forward. Elsewhere does nothing.
  void AfterStageForward();
  void AfterStep();

  // The most of each so far.
  const MemoryParts& parts() const { return parts_; }

 private:
  // Of the optimizer's parameters; `whole`: of the model's, too.
  int64_t GradientBytes(bool whole) const;
  int64_t UnshardedNow() const;
  void TakeActivations(int64_t of_others);

  const Model& model_;
  const Optimizer& optimizer_;
  const std::function<UnshardedBytes()> unsharded_;
  AllocationMeter allocated_;
  int64_t unsharded_before_ = 0;
  int64_t steps_ = 0;
  bool warm_ = false;
  MemoryParts parts_;
};

// "memory of rank 0 in MB, computed in brackets: parameters 3.3 (3.3), ...".
std::string DescribeMemory(const MemoryRecord& record);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_MEMORY_METER_H_
