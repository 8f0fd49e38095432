// Manual model parallelism in one process: each stage of a model on a device of
// its own, one after another, with the activations and their gradients copied
// across by hand. The textbook way, and the reason why pipelines exist: while
// one stage works, the others wait.
#ifndef RANKWISE_PARALLEL_MODEL_PARALLEL_SEQUENTIAL_STAGES_H_
#define RANKWISE_PARALLEL_MODEL_PARALLEL_SEQUENTIAL_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/stage.h"
#include "parallel/pipeline/step_in_flight.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/wire_format.h"

namespace rankwise {

// What crossed between a stage and the one after it, both ways together.
struct BoundaryTraffic {
  double seconds = 0;
  int64_t bytes = 0;
};

// One of these crossings.
struct StageCopy {
  size_t from = 0, to = 0;  // stages
  int64_t bytes = 0;
  double start_seconds = 0, end_seconds = 0;
};

struct SequentialStep {
  at::Tensor loss;  // scalar, detached: the sum of all micro-batches' shares
  // Per stage its forwards and backwards, in seconds of the host's steady
  // clock: when the device computed.
  Timeline timeline;
  std::vector<BoundaryTraffic> boundaries;  // [stages - 1]
  std::vector<StageCopy> copies;            // in order
  double start_seconds = 0, end_seconds = 0;
};

// A step that was given to the devices and may not have run yet.
class SequentialStepInFlight {
 public:
  const at::Tensor& loss() const { return loss_; }  // as in SequentialStep
  // Whether the devices are past it. Never blocks.
  bool reached() const;
  // Blocks until they are. `anchors`: by stage, of its device; not read on a
  // CPU.
  SequentialStep Read(const std::vector<HostAnchor>& anchors) const;

 private:
  friend class SequentialStages;
  struct TimedCopy {
    size_t from = 0, to = 0;
    int64_t bytes = 0;
    Moment start, end;  // of the sending stage's device
  };
  at::Tensor loss_;
  std::vector<std::vector<TimedAction>> actions_;  // by stage
  std::vector<TimedCopy> copies_;
  std::vector<Moment> starts_, ends_;  // by stage
};

// The host waits for no device: the stages' work is given to the devices'
// current streams, and copies order these. Not thread-safe. Throws what torch
// throws.
class SequentialStages {
 public:
  // Stage i runs on devices[i], where its parameters are. Devices may repeat:
  // on a machine without accelerators each "cpu" is a slot, and what crosses is
  // copied all the same. The stages must outlive this. With
  // `skip_communication`, for comparison, nothing is copied: stages compute
  // with small numbers instead.
  SequentialStages(std::vector<Stage*> stages, std::vector<c10::Device> devices,
                   bool skip_communication = false);

  // Forward and backward of micro-batches 0 to n-1, one after another.
  // Gradients are added to the parameters'.
  SequentialStepInFlight Run(int micro_batches);

  // Forward only, without gradients; what the last stage returns is dropped.
  void RunForward(int micro_batches);

  // One per stage; waits for the devices.
  std::vector<HostAnchor> AnchorClocks() const;

 private:
  at::Tensor RunForwardOf(int micro_batch, SequentialStepInFlight& step);
  void RunBackwardOf(int micro_batch, SequentialStepInFlight& step);
  at::Tensor Transfer(const at::Tensor& tensor, size_t from, size_t to,
                      SequentialStepInFlight& step);

  const std::vector<Stage*> stages_;
  const std::vector<c10::Device> devices_;
  const bool skip_communication_;
  std::vector<WireBuffers> replacements_;     // by stage; with the above only
  std::vector<at::Tensor> inputs_, outputs_;  // of the micro-batch in progress
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_MODEL_PARALLEL_SEQUENTIAL_STAGES_H_
