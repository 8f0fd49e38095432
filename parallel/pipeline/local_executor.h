// Runs a pipeline schedule in one process: all ranks' stages, each rank on a
// device of its own.
#ifndef RANKWISE_PARALLEL_PIPELINE_LOCAL_EXECUTOR_H_
#define RANKWISE_PARALLEL_PIPELINE_LOCAL_EXECUTOR_H_

#include <memory>
#include <vector>

#include "c10/core/Device.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage.h"
#include "parallel/pipeline/step_in_flight.h"

namespace rankwise {

struct LocalExecutorConfig {
  // By rank of the pipeline. They may repeat: on a machine without accelerators
  // each "cpu" is a slot, and what crosses is copied all the same.
  std::vector<c10::Device> devices;
  std::vector<int> rank_of_stage;
  bool recompute = false;           // as in ExecutorConfig
  bool skip_communication = false;  // as in ExecutorConfig
};

// One thread issues the actions of all ranks (issue_order.h). Accelerators then
// compute at the same time, since the host waits for none of them; on CPUs the
// actions run one after another. Losses and gradients are those of
// PipelineExecutor, bit for bit. Not thread-safe. Throws what torch throws;
// after that the executor is of no use.
class LocalExecutor {
 public:
  // All stages, by number; each is on its rank's device, and outlives this.
  LocalExecutor(std::vector<Stage*> stages, LocalExecutorConfig config);
  ~LocalExecutor();

  // Forward and backward of one optimizer step, by rank of the pipeline. As
  // PipelineExecutor::Run; the loss, on the last stage's device, is the same
  // tensor in all of them.
  std::vector<StepInFlight> Run(const Schedule& schedule);

  // As PipelineExecutor::RunForward.
  void RunForward(int micro_batches);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_LOCAL_EXECUTOR_H_
