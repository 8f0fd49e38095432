// Runs a pipeline schedule: the half of the engine that computes. Here is its
// interface: stages, the executor, and what a step reports.
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

// What one pipeline stage computes; implemented for a model. Not thread-safe:
// called only by the executor's thread.
class Stage {
 public:
  virtual ~Stage() = default;

  // Forward of one micro-batch of b examples. `input` is the output of the
  // stage before, [b, ...]; undefined for the first stage, which gets its
  // input elsewhere. Must not change `input` in place. Returns [b, ...], or,
  // from the last stage, a scalar: this micro-batch's share of the step's mean
  // loss, so that shares add up to it. Called a second time with the same
  // arguments where activations are recomputed, and must then compute the same.
  virtual at::Tensor Forward(int micro_batch, const at::Tensor& input) = 0;

  // Shape of `input` above. Not called for the first stage.
  virtual std::vector<int64_t> InputShape(int micro_batch) const = 0;
  // Shape of what Forward returns; the InputShape of the next stage.
  // Not called for the last stage.
  virtual std::vector<int64_t> OutputShape(int micro_batch) const = 0;
  // The types of input and output; their gradients have the same.
  virtual at::ScalarType InputType() const { return at::kFloat; }
  virtual at::ScalarType OutputType() const { return at::kFloat; }

  // The parameters that W computes gradients for.
  virtual std::vector<at::Tensor> Parameters() const = 0;

  // What else Forward changes, such as batch norm's running statistics. They
  // are restored after a Forward that recomputes.
  virtual std::vector<at::Tensor> Buffers() const { return {}; }
};

struct ExecutorConfig {
  // Of the ranks in this process: of its one rank, or of all, by rank of the
  // pipeline. They may repeat: on a machine without accelerators each "cpu" is
  // a slot, and messages between slots are copied as between devices.
  std::vector<c10::Device> devices = {c10::kCPU};
  // Of every stage, the rank of the pipeline that runs it.
  std::vector<int> rank_of_stage;
  // Keep only a stage's input after F, and run F again before its backward
  // (Chen et al. 2016).
  bool recompute = false;
  // Called when the last gradient of `stage` in this step is complete, before
  // the rank's other actions: where its all-reduce over replicas can start. The
  // stage's stream is current. What it does is part of the action that
  // completed the gradient.
  std::function<void(int stage)> on_gradients_ready = {};
  // For comparison: every message is one number, which keeps the order of
  // things, and stages compute with small numbers instead of what they should
  // have received.
  bool skip_communication = false;
};

// How long a rank's computation was blocked waiting for one message: from the
// end of the work before it to its arrival.
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

// What one Run did on one rank. Only Read and the seconds of `waits` make the
// host wait; a step that is dropped unread costs only its events.
struct ExecutorStep {
  // Scalar fp32, detached: the sum of all shares, on every rank of the
  // pipeline. Where one process runs all ranks, the same tensor in all of them,
  // on the last stage's device.
  at::Tensor loss;
  // This rank's actions. Read fills in their times, in seconds of the host's
  // steady clock: when the device ran them, not when they were issued. Sends
  // and receives last from their issue to the end of the wait for them.
  std::vector<Span> spans;
  double start_seconds = 0, end_seconds = 0;  // of Run, filled in by Read
  std::vector<MessageWait> waits;  // blocked for messages, the loss among them
  int peak_activations = 0;        // as in ScheduleFacts, counted as it ran
  int64_t sent_bytes = 0, received_bytes = 0;
  std::optional<StepEvents> events;  // none once the times have been read

  bool has_times() const { return !events.has_value(); }

  // Whether the device is past the step, and Read does not block.
  bool reached() const { return has_times() || events->end->reached(); }

  // Fills in the times if has_times() is false; blocks until the device is past
  // the step. `anchor`, of the step's device, places the step's start on the
  // host's clock; times within the step are the device's, whose drift over so
  // short a time does not matter.
  void Read(const HostAnchor& anchor);

  // The sum of `waits`.
  double wait_seconds() const;
};

// Runs one rank of a pipeline, or all of them. Not thread-safe. Throws what
// torch throws, also for a failed send or receive, and cannot be used
// afterwards.
class PipelineExecutor {
 public:
  // Runs one rank, which is this process's place in `pipeline`.
  // `stages`: by stage number; null where another rank runs the stage. The
  // stages and the group's communicator must outlive it.
  PipelineExecutor(const Group& pipeline, const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  // Runs all ranks, each on its device of `config`. One thread issues the
  // actions of all ranks (IssueOrder). Accelerators then compute at the same
  // time, since the host waits for none of them; on CPUs the actions run one
  // after another. Losses and gradients are bitwise equal to those of one
  // process per rank. The stages must outlive it.
  PipelineExecutor(const std::vector<Stage*>& stages,
                   const ExecutorConfig& config);
  ~PipelineExecutor();

  // Forward and backward of one optimizer step; one result per rank here.
  // Gradients are added to the parameters' in order of micro-batch. `schedule`
  // must come from AddCommunication and be the same on all ranks, which all
  // call this. On an accelerator every stage computes on a stream of its own;
  // the host only issues, and what it gives to the current stream next comes
  // after the step. That is how an F and a B that may overlap do: they are of
  // two stages, and neither stream waits for the other. Where both are of one
  // stage, or of stages that share a parameter, and on a CPU, they run in
  // order.
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
