// A training step as one launch (--cuda_graph): forward, backward, all-reduce
// and update are captured once in a graph of the device and then replayed, so
// that the host no longer decides how fast a small model trains.
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

// While it lives, all that this thread gives to the device goes to a stream of
// its own. Make it before the model: autograd keeps the stream on which it
// first met a parameter.
class SideStream {
 public:
  // Does nothing where not `wanted`, or on a CPU.
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
  // What it holds outlives this; it leaves no gradients behind.
  StepFunction step;
  // Steps with full batches that run without a graph before the capture, so
  // that what is allocated, chosen or connected once is. They train like any
  // other.
  int64_t warm_up_steps = 3;
  // After a capture that failed on some rank: makes anew what the step keeps
  // on the host between its calls and may now be half way through. Collective;
  // may be null.
  std::function<absl::Status()> recover = nullptr;
  // Why the step cannot be captured, where that is known beforehand; else "".
  std::string refusal = {};
  std::function<absl::StatusOr<std::unique_ptr<DeviceGraph>>()> make_graph = {};
  // Whether `mine` is true on all ranks. Collective; null: there are no others.
  std::function<absl::StatusOr<bool>(bool mine)> on_all_ranks = nullptr;
  // Tell the user: of the whole run, and of this rank.
  std::function<void(const std::string&line)> say = {}, say_of_rank = {};
};

// The same updates as the step that it is given, with these exceptions run
// without the graph: the first steps, those whose batches have another number
// or shape than the captured ones (the last of an epoch), and those that are
// watched. Where the capture fails, on any rank, all steps run without it. It
// says so, with the reason, once for each kind of exception.
//
// A graph holds addresses, so what changes from step to step reaches it in
// tensors that stay where they are: the batches are copied into the graph's
// own, and the learning rate is a scalar on the device. The step begins without
// gradients and drops them at its end, so that the captured backward makes them
// within the graph's memory, writing and not adding, in every replay. What the
// host does in a step happens once, at the capture: a step that seeds a
// generator, or reads a number, cannot be captured.
//
// Sources: PyTorch's notes "CUDA semantics", section "CUDA Graphs" (whole-
// network capture; usage with DistributedDataParallel, which asks for 11 steps
// before and that all of them, and the engine's construction, happen outside
// the default stream: see SideStream).
class CapturedStep {
 public:
  // `optimizer`, which the step calls, must outlive it.
  CapturedStep(CapturableStep step, Optimizer& optimizer)
      : step_(std::move(step)), optimizer_(optimizer) {}

  // One step, as `step.step` would do it. May throw what it throws.
  absl::StatusOr<StepOutcome> Run(const StepInput& input);

 private:
  // Whether the graph is there and fits; captures it when it is time to.
  absl::StatusOr<bool> Ready(const StepInput& input);
  absl::Status Capture(const StepInput& input);
  absl::Status RunCaptured();  // what the graph holds
  absl::Status GiveUp();
  StepOutcome Replay(const StepInput& input);
  void SayOnce(const std::string& line);

  const CapturableStep step_;
  Optimizer& optimizer_;
  std::vector<std::string> said_;
  bool gave_up_ = false;
  std::vector<std::vector<int64_t>> shapes_;  // of the largest step so far
  int64_t examples_ = 0;                      // in it
  int64_t steps_of_shapes_ = 0;
  // What the graph reads and writes, at these addresses.
  std::vector<Batch> batches_;
  std::vector<uint64_t> dropout_seeds_;
  torch::Tensor learning_rate_;
  torch::Tensor loss_, gradient_norm_;
  std::unique_ptr<DeviceGraph> graph_;  // destroyed before what it reads
};

// `step.step` itself without --cuda_graph; else one that captures it and
// replays the graph where it can. What it refers to must outlive the result.
StepFunction CaptureIfRequested(const TrainConfig& config, const Worker& worker,
                                TrainingRun& run, CapturableStep step);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_GRAPHS_CAPTURED_STEP_H_
