// The computing half of the pipeline engine: stages, the executor, and the
// results of a step.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {

class Group;

// The computation of one pipeline stage; implemented for a model. Not
// thread-safe: called only by the executor's thread.
class Stage {
 public:
  virtual ~Stage() = default;

  // Runs the forward of one micro-batch of b examples. `input` is the previous
  // stage's output, [b, ...]; undefined for the first stage, which has its own
  // input. Must not modify `input` in place. Returns [b, ...], or, from the
  // last stage, a scalar: this micro-batch's share of the step's mean loss; the
  // shares sum to it. With activation recomputation it is called again with the
  // same arguments and must return the same result.
  virtual at::Tensor Forward(int micro_batch, const at::Tensor& input) = 0;

  // Returns the shape of Forward's input. Not called for the first stage.
  virtual std::vector<int64_t> InputShape(int micro_batch) const = 0;
  // Returns the shape of Forward's result, which is the next stage's
  // InputShape. Not called for the last stage.
  virtual std::vector<int64_t> OutputShape(int micro_batch) const = 0;
  // The types of input and output, which their gradients share.
  virtual at::ScalarType InputType() const { return at::kFloat; }
  virtual at::ScalarType OutputType() const { return at::kFloat; }

  // Returns the parameters for which W computes gradients.
  virtual std::vector<at::Tensor> Parameters() const = 0;

  // Returns other state that Forward modifies, such as batch norm's running
  // statistics. It is restored after a recomputation.
  virtual std::vector<at::Tensor> Buffers() const { return {}; }
};

struct ExecutorConfig {
  // Devices of this process's ranks: of its one rank, or of all, by pipeline
  // rank. They may repeat: without accelerators each "cpu" is a slot, and
  // messages are copied between slots as between devices.
  std::vector<c10::Device> devices = {c10::kCPU};
  // By stage, the pipeline rank that runs it.
  std::vector<int> rank_of_stage;
  // Stores only a stage's input after F, and runs F again before its backward
  // (Chen et al. 2016).
  bool recompute = false;
  // Called when the last gradient of `stage` in this step is complete, before
  // the rank's other actions, so that its all-reduce over replicas can start.
  // The stage's stream is current. Counted as part of the action that completed
  // the gradient.
  std::function<void(int stage)> on_gradients_ready = {};
  // For comparison: every message is a single element, which preserves the
  // order of operations; stages compute with small numbers instead of the
  // received tensors.
  bool skip_communication = false;
};

// The time for which a rank's computation was blocked by one message: from the
// end of the preceding work to the message's arrival.
struct MessageWait {
  int64_t bytes = 0;
  PendingDuration seconds;
};

// Events that mark a rank's progress in a step, all on the rank's device.
struct StepEvents {
  explicit StepEvents(DeviceEvent step_start) : start(std::move(step_start)) {}

  DeviceEvent start;
  std::optional<DeviceEvent> end;
  // Start and end of each of the step's spans.
  std::vector<std::pair<std::optional<DeviceEvent>, std::optional<DeviceEvent>>>
      spans;
};

// The results of one Run on one rank. Only Read and the seconds of `waits`
// block the host; a step that is dropped unread costs only its events.
struct ExecutorStep {
  // Scalar fp32, detached: the sum of all shares, on every rank of the
  // pipeline. If one process runs all ranks, they have the same tensor, on the
  // last stage's device.
  at::Tensor loss;
  // This rank's actions. Read sets their times in seconds of the host's steady
  // clock: execution times on the device, not issue times. Sends and receives
  // last from their issue to the end of the wait for them.
  std::vector<Span> spans;
  double start_seconds = 0, end_seconds = 0;  // of Run, set by Read
  std::vector<MessageWait> waits;  // for messages, including the loss
  int peak_activations = 0;        // as in ScheduleFacts, measured
  int64_t sent_bytes = 0, received_bytes = 0;
  std::optional<StepEvents> events;  // nullopt once the times have been read

  bool has_times() const { return !events.has_value(); }

  // Returns whether the device has passed the step; then Read does not block.
  bool reached() const { return has_times() || events->end->reached(); }

  // Sets the times if has_times() is false; blocks until the device has passed
  // the step. `anchor`, of the step's device, maps the step's start to the
  // host's clock; times within the step are the device's, whose drift is
  // negligible over one step.
  void Read(const HostAnchor& anchor);

  // Returns the sum of `waits`.
  double wait_seconds() const;
};

// Runs one rank of a pipeline, or all of them. Not thread-safe. Throws torch's
// exceptions, also for a failed send or receive, and cannot be used afterwards.
class PipelineExecutor {
 public:
  // Runs one rank, this process's place in `pipeline`. `stages`: by stage
  // number; nullptr for stages of other ranks. The stages and the group's
  // communicator must outlive the executor.
  PipelineExecutor(const Group& pipeline, const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  // Runs all ranks, each on its device of `config`. One thread issues the
  // actions of all ranks (IssueOrder). Accelerators compute concurrently, since
  // the host waits for none of them; on CPUs the actions run one after another.
  // Losses and gradients are bitwise equal to those of one process per rank.
  // The stages must outlive the executor.
  PipelineExecutor(const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  ~PipelineExecutor();

  // Runs forward and backward of one optimizer step; returns one result per
  // rank in this process. Accumulates gradients in micro-batch order.
  // `schedule` must come from AddCommunication and be equal on all ranks, all
  // of which must call Run. On an accelerator every stage computes on a stream
  // of its own; the host only issues, and later work on the current stream is
  // ordered after the step. Thus a schedule's F and B of two stages may
  // overlap: neither stream waits for the other. They run in order on a CPU and
  // if they belong to one stage or to stages that share a parameter.
  std::vector<ExecutorStep> Run(const Schedule& schedule);

  // Runs `micro_batches` micro-batches through all stages, pipelined, forward
  // only and without gradients; discards the last stage's results. All ranks
  // must call it.
  void RunForward(int micro_batches);

  struct Parts;

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_
