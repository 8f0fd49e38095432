// The times and results of training steps, measured without making the host
// wait for the device at every step, and the records of finished steps.
#ifndef RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_
#define RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "parallel/device/device_event.h"
#include "parallel/trace/chrome_trace.h"
#include "parallel/trace/operators.h"
#include "records/record.h"
#include "records/record_writer.h"

namespace rankwise {

// kSchedule: a pipeline's forward and backward passes, which the executor times
// separately. kCaptured: forward, backward and update in one graph launch.
// kScatter to kReduce: work of the first device of replicas in one process, for
// which the others wait; the last two are part of backward, the others of
// forward.
enum class Phase {
  kBetween,
  kDataWait,
  kForward,
  kBackward,
  kSchedule,
  kOptimizer,
  kCaptured,
  kScatter,
  kReplicate,
  kGather,
  kLoss,
  kScatterGradient,
  kReduce,
  kEnd
};

// Returns the phase's name in traces and ranges; nullptr if left out of them.
const char* PhaseName(Phase phase);

// One interval of a phase, in seconds of the steady clock.
struct PhaseSpan {
  Phase phase = Phase::kBetween;
  double start_seconds = 0, end_seconds = 0;
};

// The phases of one step. On a CPU the marks are times of the host's clock; on
// CUDA they are events on the current stream, so that a phase lasts as long as
// its work on the device, except kDataWait, which is always measured on the
// host. Phases are also NVTX ranges.
class StepClock {
 public:
  // Starts the step in kBetween: records, console and checkpoints after the
  // previous step.
  explicit StepClock(torch::Device device);
  // Returns a clock that marks nothing, for a step captured into a graph, which
  // must contain no events. Cannot be read.
  static StepClock Inert();

  // Called by every later Begin, before the phase begins. May be nullptr.
  void set_observer(std::function<void(Phase)> observer) {
    observer_ = std::move(observer);
  }

  // Ends the previous phase and begins `phase`; repeated phases add up. Throws
  // c10::Error after kEnd.
  void Begin(Phase phase);

  // Adds the phases' times to those of `record`, and sets the step's. Blocks
  // until the device has reached the end of the step. Throws c10::Error before
  // Begin(kEnd), and for an inert clock.
  void AddTo(StepRecord& record) const;

  // Returns the phases in order, the first from the step's begin; blocks and
  // throws like AddTo. On CUDA the device's times are relative to the host's
  // begin of the step, which is correct if the device was idle then.
  std::vector<PhaseSpan> Phases() const;

  // Returns the begin of the step on the host's steady clock.
  int64_t start_ns() const;

 private:
  struct Mark {
    Phase phase;
    DeviceEvent event;
  };
  StepClock() = default;  // inert
  bool ended() const;
  void WaitForTheEnd() const;

  bool inert_ = true;
  torch::Device device_ = torch::kCPU;
  std::vector<Mark> marks_;  // empty if inert
  ScopedRange range_;
  std::function<void(Phase)> observer_;
};

struct StepOutcome {
  torch::Tensor loss;  // scalar, detached, mean over this rank's examples
  // The rank that computed `loss`, named in messages if it is not finite.
  // kNoRank: computed by no rank, and not checked.
  static constexpr int kThisRank = -1, kNoRank = -2;
  int loss_rank = kThisRank;
  // Scalar: norm of all gradients before clipping; undefined if the step did
  // not compute it.
  torch::Tensor gradient_norm = {};
  // Exposed communication of forward and backward: of data parallelism's
  // gradients, and along other axes of the mesh ("cp", "tp").
  PendingDuration exposed_comm_seconds = {};
  std::map<std::string, PendingDuration> exposed_by_axis = {};
  double wait_seconds = 0;  // blocked on a pipeline's messages
  // For a traced step: bars within the phases, and the predicted timeline of a
  // pipeline's schedule (on the first rank's steady clock).
  std::vector<TraceSpan> trace = {};
  std::optional<TraceProcess> predicted_trace = {};
  // Completes the record with measurements of the device: called after the
  // device has finished the step, before the record is written. May be nullptr.
  std::function<void(StepRecord&)> complete = {};
  // Examples of all ranks, for the console's rate; nullopt if every
  // data-parallel rank had as many as this one.
  std::optional<int64_t> examples_of_all = {};
};

// A step submitted to the device that may not have run yet.
struct PendingStep {
  // Without the fields filled from the clock and the outcome.
  StepRecord record;
  StepOutcome outcome;
  StepClock clock;  // after Begin(Phase::kEnd)
  // Complete except for step_seconds and exposed_comm_seconds.
  std::optional<TrafficRecord> traffic = {};
};

// Sums over the flushed steps of the current epoch.
struct EpochSums {
  double loss = 0;  // weighted by examples
  int64_t examples = 0;
};

// The first value of a run that was not finite.
struct NonFinite {
  int64_t step = 0;  // 0 if all values were finite
  int rank = 0;
  bool is_gradient_norm = false;  // else a loss
  double value = 0;
};

// The host waits for the device only in Flush.
class StepLog {
 public:
  // If `writer` is nullptr, the steps are only summed. first_non_finite()
  // reports a loss after `non_finite_steps` consecutive steps without a finite
  // one.
  StepLog(torch::Device device, RecordWriter* writer,
          int64_t non_finite_steps = 1)
      : device_(device), writer_(writer), non_finite_steps_(non_finite_steps) {}

  // Stores the step until the next Flush. On a CPU, which needs no waiting,
  // flushes at once.
  absl::Status Add(PendingStep step);

  // Blocks until the device is done, copies the losses and gradient norms of
  // all steps since the last call at once, checks them, and writes the steps'
  // records.
  absl::Status Flush();

  // Returns the loss of the last flushed step; nullopt before the first.
  std::optional<double> last_loss() const { return last_loss_; }
  const NonFinite& first_non_finite() const { return first_non_finite_; }

  EpochSums& epoch_sums() { return epoch_sums_; }

 private:
  void CheckFinite(const PendingStep& step, double loss, double gradient_norm);

  const torch::Device device_;
  RecordWriter* const writer_;
  const int64_t non_finite_steps_;
  std::vector<PendingStep> pending_;
  EpochSums epoch_sums_;
  std::optional<double> last_loss_;
  int64_t non_finite_in_a_row_ = 0;  // consecutive losses
  NonFinite first_non_finite_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_
