// Runs a pipeline schedule: the half of the engine that computes. One rank per
// process (PipelineExecutor), or all ranks in one (LocalExecutor).
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_

#include <functional>
#include <memory>
#include <vector>

#include "c10/core/Device.h"
#include "parallel/pipeline/engine/executor_step.h"
#include "parallel/pipeline/engine/stage.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

class Group;

struct ExecutorConfig {
  // Of the ranks in this process: PipelineExecutor's one, or LocalExecutor's
  // all, by rank of the pipeline. They may repeat: on a machine without
  // accelerators each "cpu" is a slot, and what crosses is copied all the same.
  std::vector<c10::Device> devices = {c10::kCPU};
  // Of every stage, the rank of the pipeline that runs it.
  std::vector<int> rank_of_stage;
  // Keep only a stage's input after F, and run F again before its backward
  // (Chen et al. 2016).
  bool recompute = false;
  // Called when the last gradient of `stage` in this step is complete, before
  // the rank's other actions: where its all-reduce over replicas can start. The
  // stage's stream is current.
  std::function<void(int stage)> on_gradients_ready = {};
  // For comparison: every message is one number, which keeps the order of
  // things, and stages compute with small numbers instead of what they should
  // have received.
  bool skip_communication = false;
};

// One rank of a pipeline. Not thread-safe. Throws what torch throws, a failed
// send or receive included; the executor cannot be used afterwards.
class PipelineExecutor {
 public:
  // `pipeline`: its ranks, by place; this one's is the group's. `stages`: by
  // stage number; null where another rank runs the stage. The stages and the
  // group's communicator must outlive it.
  PipelineExecutor(const Group& pipeline, const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  ~PipelineExecutor();

  // Forward and backward of one optimizer step. Gradients are added to the
  // parameters' in order of micro-batch. `schedule` must come from
  // AddCommunication and be the same on all ranks, which all call this. On an
  // accelerator every stage computes on a stream of its own; the host only
  // issues, and what it gives to the current stream next comes after the step.
  ExecutorStep Run(const Schedule& schedule);

  // Forward only, without gradients, of `micro_batches` micro-batches through
  // all stages, pipelined; what the last stage returns is dropped. Called by
  // all ranks.
  void RunForward(int micro_batches);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// All ranks of a pipeline, each on a device of its own. One thread issues the
// actions of all ranks (dry_run.h). Accelerators then compute at the same
// time, since the host waits for none of them; on CPUs the actions run one
// after another. Losses and gradients are those of PipelineExecutor, bit for
// bit. Not thread-safe. Throws what torch throws; the executor cannot be used
// afterwards.
class LocalExecutor {
 public:
  // All stages, by number; each is on its rank's device, and outlives this.
  LocalExecutor(const std::vector<Stage*>& stages,
                const ExecutorConfig& config);
  ~LocalExecutor();

  // Forward and backward of one optimizer step, by rank of the pipeline. As
  // PipelineExecutor::Run; the loss, on the last stage's device, is the same
  // tensor in all of them.
  std::vector<ExecutorStep> Run(const Schedule& schedule);

  // As PipelineExecutor::RunForward.
  void RunForward(int micro_batches);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_
