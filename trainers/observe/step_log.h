// A training step's times and result: where its time goes, measured without
// making the host wait for the device at every step, and the records that
// finished steps become.
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
// one by one. kCaptured: forward, backward and update in one launch of a graph.
// kScatter to kReduce: of replicas in one process, what the first device does
// while the others wait; parts of forward (to kGather, kLoss) and backward.
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

// Its name in traces and ranges; null for phases that they leave out.
const char* PhaseName(Phase phase);

// A stretch of one phase, in seconds of the steady clock.
struct PhaseSpan {
  Phase phase = Phase::kBetween;
  double start_seconds = 0, end_seconds = 0;
};

// One step's phases. On a CPU the marks are the host's clock; on CUDA they are
// events on the current stream, so that a phase is what the device spent in it,
// except kDataWait, which is always the host's. Phases are NVTX ranges, too.
class StepClock {
 public:
  // The step starts now, in kBetween: records, console and checkpoints after
  // the step before.
  explicit StepClock(torch::Device device);
  // Marks nothing, for a step that is being captured into a graph, which must
  // contain no events. Cannot be read.
  static StepClock Inert();

  // Called at each Begin that follows, before the phase begins. May be null.
  void set_observer(std::function<void(Phase)> observer) {
    observer_ = std::move(observer);
  }

  // The phase before ends here and `phase` begins. A phase may come several
  // times; its times add up. Throws c10::Error after kEnd.
  void Begin(Phase phase);

  // Adds the phases' times to those of `record`, and sets the step's. Blocks
  // until the device has reached the end of the step. Throws c10::Error before
  // Begin(kEnd), and of an inert clock.
  void AddTo(StepRecord& record) const;

  // The phases one by one, the first from the step's begin; blocks and throws
  // as AddTo. On CUDA the device's times count from the host's begin of the
  // step, which is right where the device had nothing left to do then.
  std::vector<PhaseSpan> Phases() const;

  // When the step began, by the host's steady clock.
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
  std::vector<Mark> marks_;  // empty where inert
  ScopedRange range_;
  std::function<void(Phase)> observer_;
};

struct StepOutcome {
  torch::Tensor loss;  // scalar, detached, mean over this rank's examples
  // The rank that computed `loss`, which a message names if it is not finite.
  // kNoRank: no rank did, and it is not tested.
  static constexpr int kThisRank = -1, kNoRank = -2;
  int loss_rank = kThisRank;
  // Scalar, of all gradients before they were clipped; undefined if the step
  // did not compute it.
  torch::Tensor gradient_norm = {};
  // How long forward and backward only waited for communication: for gradients
  // of data parallelism, and along other axes of the mesh ("cp", "tp").
  PendingDuration exposed_comm_seconds = {};
  std::map<std::string, PendingDuration> exposed_by_axis = {};
  double wait_seconds = 0;  // of a pipeline: blocked for messages
  // Of a traced step: bars within the phases, and a pipeline's schedule as it
  // was predicted (in the first rank's steady clock).
  std::vector<TraceSpan> trace = {};
  std::optional<TraceProcess> predicted_trace = {};
  // What only the device can tell: called once it is past the step, before the
  // record is written. May be null.
  std::function<void(StepRecord&)> complete = {};
  // Examples of all ranks, for the console's rate. None: every data-parallel
  // rank has had as many as this one.
  std::optional<int64_t> examples_of_all = {};
};

// A step that was submitted to the device and may not have run yet.
struct PendingStep {
  // Without the fields that come from the clock and the outcome.
  StepRecord record;
  StepOutcome outcome;
  StepClock clock;  // after Begin(Phase::kEnd)
  // Complete but for step_seconds and exposed_comm_seconds.
  std::optional<TrafficRecord> traffic = {};
};

// Sums over the steps of the current epoch that were flushed.
struct EpochSums {
  double loss = 0;  // weighted by examples
  int64_t examples = 0;
};

// The first number of a run that was not finite.
struct NonFinite {
  int64_t step = 0;  // 0: all were finite
  int rank = 0;
  bool is_gradient_norm = false;  // else a loss
  double value = 0;
};

// The host waits for the device in Flush and nowhere else.
class StepLog {
 public:
  // `writer` null: the steps are only summed. first_non_finite() reports a loss
  // once `non_finite_steps` steps in a row had none that was finite.
  StepLog(torch::Device device, RecordWriter* writer,
          int64_t non_finite_steps = 1)
      : device_(device), writer_(writer), non_finite_steps_(non_finite_steps) {}

  // Keeps the step until the next Flush. On a CPU there is nothing to wait for:
  // it is flushed at once.
  absl::Status Add(PendingStep step);

  // Waits for the device, copies the losses and gradient norms of all steps
  // since the last call to the host at once, tests them, and writes the steps'
  // records.
  absl::Status Flush();

  // The loss of the last step that was flushed; nullopt before the first.
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
  int64_t non_finite_in_a_row_ = 0;  // losses
  NonFinite first_non_finite_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_
