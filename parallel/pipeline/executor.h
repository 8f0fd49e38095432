// Runs a pipeline schedule over a process group: the half of the engine that
// computes.
#ifndef RANKWISE_PARALLEL_PIPELINE_EXECUTOR_H_
#define RANKWISE_PARALLEL_PIPELINE_EXECUTOR_H_

#include <functional>
#include <memory>
#include <vector>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage.h"
#include "parallel/pipeline/step_in_flight.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

struct ExecutorConfig {
  c10::Device device = c10::kCPU;
  // Keep only a stage's input after F, and run F again before its backward
  // (Chen et al. 2016).
  bool recompute = false;
  // Called when the last gradient of `stage` in this step is complete, before
  // the rank's other actions: where its all-reduce over replicas can start. The
  // stage's stream is current.
  std::function<void(int stage)> on_gradients_ready;
  // For comparison: every message is one number, which keeps the order of
  // things, and stages compute with small numbers instead of what they should
  // have received.
  bool skip_communication = false;
};

// One per rank of a pipeline. Not thread-safe. Throws what torch throws, a
// failed send or receive included; after that the executor is of no use.
class PipelineExecutor {
 public:
  // `group`: where `ranks[i]` is the rank within it of the pipeline's rank i.
  // `rank`: of this process, within the pipeline. `stages`: by stage number;
  // null where another rank runs the stage. The stages must outlive it. With
  // one rank `group` may be null.
  PipelineExecutor(c10::intrusive_ptr<c10d::ProcessGroup> group,
                   std::vector<int> ranks, int rank, std::vector<Stage*> stages,
                   ExecutorConfig config);
  ~PipelineExecutor();

  // Forward and backward of one optimizer step. Gradients are added to the
  // parameters' in order of micro-batch. `schedule` must come from
  // AddCommunication and be the same on all ranks, which all call this. On an
  // accelerator every stage computes on a stream of its own; the host only
  // issues, and what it gives to the current stream next comes after the step.
  StepInFlight Run(const Schedule& schedule);

  // Forward only, without gradients, of `micro_batches` micro-batches through
  // all stages, pipelined; what the last stage returns is dropped. Called by
  // all ranks.
  void RunForward(int micro_batches);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_EXECUTOR_H_
