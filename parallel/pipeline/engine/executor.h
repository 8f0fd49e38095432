// Runs a pipeline schedule: the half of the engine that computes. What its
// users see of it: stages, the executor, and what a step reports.
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

// What one pipeline stage computes. Implemented by whoever owns the model.
// Not thread-safe. Called by the executor's thread only.
class Stage {
 public:
  virtual ~Stage() = default;

  // Forward of one micro-batch of b examples. `input` is the output of the
  // stage before, [b, ...]; undefined for the first stage, which finds its
  // input itself. Must not change `input` in place. Returns [b, ...], or, from
  // the last stage, a scalar: this micro-batch's share of the step's mean loss,
  // so that shares add up to it. Called a second time with the same arguments
  // where activations are recomputed, and must then compute the same.
  virtual at::Tensor Forward(int micro_batch, const at::Tensor& input) = 0;

  // Shape of `input` above. Not called for the first stage.
  virtual std::vector<int64_t> InputShape(int micro_batch) const = 0;
  // Shape of what Forward returns, which the next stage calls its InputShape.
  // Not called for the last stage.
  virtual std::vector<int64_t> OutputShape(int micro_batch) const = 0;
  // Their types, likewise; the gradients that come back have the same.
  virtual at::ScalarType InputType() const { return at::kFloat; }
  virtual at::ScalarType OutputType() const { return at::kFloat; }

  // The parameters that W computes gradients for.
  virtual std::vector<at::Tensor> Parameters() const = 0;

  // What else Forward changes, such as batch norm's running statistics. A
  // Forward that is called to recompute leaves no trace in them.
  virtual std::vector<at::Tensor> Buffers() const { return {}; }
};

struct ExecutorConfig {
  // Of the ranks in this process: one, or all by rank of the pipeline. They may
  // repeat: on a machine without accelerators each "cpu" is a slot, and what
  // crosses is copied all the same.
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

// How long a rank's computation was blocked for one message: from the end of
// what it did before to the arrival.
struct MessageWait {
  int64_t bytes = 0;
  PendingDuration seconds;
};

// When a rank's device was where in a step. All events are of that device.
struct StepEvents {
  explicit StepEvents(DeviceEvent step_start) : start(std::move(step_start)) {}

  DeviceEvent start;
  std::optional<DeviceEvent> end;
  // Start and end of each of the step's spans.
  std::vector<std::pair<std::optional<DeviceEvent>, std::optional<DeviceEvent>>>
      spans;
};

// What one Run did on one rank. Nothing here makes the host wait but Read and
// the waits' seconds; a step that is dropped unread costs only its events.
struct ExecutorStep {
  // Scalar fp32, detached: the sum of all shares, on every rank of the
  // pipeline. One tensor, on the last stage's device, where one process has all
  // ranks.
  at::Tensor loss;
  // This rank's actions, whose times Read fills in: of the host's steady clock,
  // in seconds, and of when the device computed, not of when it was told to.
  // Sends and receives run from issue until somebody has waited for them.
  std::vector<Span> spans;
  double start_seconds = 0, end_seconds = 0;  // of Run, filled in by Read
  std::vector<MessageWait> waits;  // blocked for messages, the loss among them
  int peak_activations = 0;        // as in ScheduleFacts, counted as it ran
  int64_t sent_bytes = 0, received_bytes = 0;
  std::optional<StepEvents> events;  // none once the times have been read

  bool has_times() const { return !events.has_value(); }

  // Whether the device is past the step, and Read does not block.
  bool reached() const { return has_times() || events->end->reached(); }

  // Fills in the times, unless they are there; blocks until the device is past
  // the step. `anchor`, of the step's device, says where the step stands on the
  // host's clock; within the step only the device's clock counts, whose drift
  // and rounding do not matter there.
  void Read(const HostAnchor& anchor);

  // The sum of `waits`.
  double wait_seconds() const;
};

// One rank of a pipeline, or all of them. Not thread-safe. Throws what torch
// throws, a failed send or receive included; it cannot be used afterwards.
class PipelineExecutor {
 public:
  // One rank. `pipeline`: its ranks, by place; this one's is the group's.
  // `stages`: by stage number; null where another rank runs the stage. The
  // stages and the group's communicator must outlive it.
  PipelineExecutor(const Group& pipeline, const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  // All ranks, each on a device of its own. One thread issues the actions of
  // all ranks (IssueOrder). Accelerators then compute at the same time, since
  // the host waits for none of them; on CPUs the actions run one after another.
  // Losses and gradients are those of one process per rank, bit for bit.
  PipelineExecutor(const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  ~PipelineExecutor();

  // Forward and backward of one optimizer step; by rank of this process.
  // Gradients are added to the parameters' in order of micro-batch. `schedule`
  // must come from AddCommunication and be the same on all ranks, which all
  // call this. On an accelerator every stage computes on a stream of its own;
  // the host only issues, and what it gives to the current stream next comes
  // after the step.
  std::vector<ExecutorStep> Run(const Schedule& schedule);

  // Forward only, without gradients, of `micro_batches` micro-batches through
  // all stages, pipelined; what the last stage returns is dropped. Called by
  // all ranks.
  void RunForward(int micro_batches);

  struct Parts;  // of the implementation

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_H_
