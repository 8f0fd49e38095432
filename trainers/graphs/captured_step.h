// A training step as one launch (--cuda_graph): forward, backward, all-reduce
// and update are captured once in a graph of the device and then replayed, so
// that the host no longer limits the speed of small models.
#ifndef RANKWISE_TRAINERS_GRAPHS_CAPTURED_STEP_H_
#define RANKWISE_TRAINERS_GRAPHS_CAPTURED_STEP_H_

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/device/graph.h"
#include "trainers/loop/step.h"
#include "trainers/loop/training_run.h"

namespace rankwise {

// While it exists, work that this thread submits to the device runs on a
// separate stream. Create it before the model: autograd remembers the stream on
// which it first used a parameter.
class SideStream {
 public:
  // Does nothing unless `wanted`, or on a CPU.
  SideStream(c10::Device device, bool wanted) {
    if (!wanted || device.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    stream_.reset_stream(
        guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false));
  }

 private:
  c10::OptionalStreamGuard stream_;
};

// A step to capture. The trainer sets the first three fields,
// CaptureIfRequested the others.
struct CapturableStep {
  // References in it must outlive this; it must leave no gradients behind.
  StepFunction step;
  // Steps with full batches that run without a graph before the capture, for
  // one-time allocations, choices and connections. They train like any other.
  int64_t warm_up_steps = 3;
  // Called after a capture that failed on some rank: recreates the step's state
  // on the host, which may be incomplete. Collective; may be nullptr.
  std::function<absl::Status()> recover = nullptr;
  // Why the step cannot be captured if known in advance; else "".
  std::string refusal = {};
  std::function<absl::StatusOr<std::unique_ptr<DeviceGraph>>()> make_graph = {};
  // Returns whether `mine` is true on all ranks. Collective; nullptr without
  // other ranks.
  std::function<absl::StatusOr<bool>(bool mine)> on_all_ranks = nullptr;
  // Print a line for the whole run, and for this rank.
  std::function<void(const std::string&line)> say = {}, say_of_rank = {};
};

// Performs the same updates as the given step, with these exceptions run
// without the graph: the first steps, those whose batches differ in number or
// shape from the captured ones (the last of an epoch), and traced or recorded
// ones. If the capture fails on any rank, all steps run without it. Prints the
// reason once for each kind of exception.
//
// A graph holds addresses, so values that change from step to step are passed
// in tensors at fixed addresses: the batches are copied into the graph's own,
// and the learning rate is a scalar on the device. The step begins without
// gradients and drops them at its end, so that the captured backward allocates
// them in the graph's memory and overwrites instead of accumulating in every
// replay. The host's part of a step runs only once, at the capture: a step that
// seeds a generator, or reads a number, cannot be captured.
//
// Sources: PyTorch's notes "CUDA semantics", section "CUDA Graphs"
// (whole-network capture; usage with DistributedDataParallel, which requires 11
// steps before the capture, and these and the engine's construction outside the
// default stream: see SideStream).
class CapturedStep {
 public:
  // `optimizer`, which the step calls, must outlive it.
  CapturedStep(CapturableStep step, Optimizer& optimizer)
      : step_(std::move(step)), optimizer_(optimizer) {}

  // Runs one step like `step.step`, and throws the same exceptions.
  absl::StatusOr<StepOutcome> Run(const StepInput& input);

 private:
  // Returns whether there is a graph for these batches; captures it when due.
  absl::StatusOr<bool> Ready(const StepInput& input);
  absl::Status Capture(const StepInput& input);
  absl::Status RunCaptured();  // the work of the graph
  absl::Status GiveUp();
  StepOutcome Replay(const StepInput& input);
  void SayOnce(const std::string& line);

  const CapturableStep step_;
  Optimizer& optimizer_;
  std::vector<std::string> said_;
  bool gave_up_ = false;
  std::vector<std::vector<int64_t>> shapes_;  // of the largest step so far
  int64_t examples_ = 0;                      // in that step
  int64_t steps_of_shapes_ = 0;
  // Tensors that the graph reads and writes, at fixed addresses.
  std::vector<Batch> batches_;
  std::vector<uint64_t> dropout_seeds_;
  torch::Tensor learning_rate_;
  torch::Tensor loss_, gradient_norm_;
  std::unique_ptr<DeviceGraph> graph_;  // destroyed before its inputs
};

// Returns `step.step` itself without --cuda_graph; otherwise a step that
// captures it and replays it if possible. `worker`, `run` and the references in
// `step` must outlive the result.
StepFunction CaptureIfRequested(const TrainConfig& config, const Worker& worker,
                                TrainingRun& run, CapturableStep step);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_GRAPHS_CAPTURED_STEP_H_
