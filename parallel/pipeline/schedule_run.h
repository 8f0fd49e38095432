// One rank's part of one step: performs the actions of its list.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_RUN_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_RUN_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/mail.h"
#include "parallel/pipeline/send_release.h"
#include "parallel/pipeline/stage_runner.h"
#include "parallel/pipeline/stage_streams.h"
#include "parallel/pipeline/step_in_flight.h"
#include "parallel/pipeline/wire_format.h"

namespace rankwise {

using StageRunners = std::vector<std::unique_ptr<StageRunner>>;

// What the runs of a rank use, step after step. All of it outlives them.
struct RunParts {
  Mail& mail;
  const StageStreams& streams;
  WireBuffers& buffers;
  StageRunners& runners;  // by stage, null where another process runs it
};

// Receives are posted at their place in the list and waited for by the action
// that needs them. Sends are not waited for: their buffers are freed once
// something that was received shows that they have arrived, and the last ones
// at the end of the step. On an accelerator the host only issues: actions go to
// their stages' streams, and what one stage makes and another one needs is
// ordered there. Used once, by one thread, between Begin and End of the
// streams.
class ScheduleRun {
 public:
  struct Options {
    bool evaluate = false;  // F computes without gradients, no shares are kept
    // No more sends in flight than this: the oldest one is waited for. 0: no
    // limit. Only for schedules that do not deadlock when sends block.
    size_t max_sends = 0;
    std::function<void(int stage)> on_gradients_ready;
    bool skip_communication = false;  // as in ExecutorConfig
  };

  // Of the mail's rank. The step starts now. `schedule` outlives the run.
  ScheduleRun(const Schedule& schedule, const RunParts& parts, Options options);

  bool done() const { return next_ == actions_.size(); }
  // Issues the next action.
  void Next();
  // After the last action: the sends that nobody has waited for.
  void Finish();
  // All of that.
  void Run();

  // After Finish. Leaves loss, waits and end to the caller.
  StepInFlight TakeStep() { return std::move(step_); }

  // The last stage's shares of the loss by micro-batch; empty on other ranks.
  const std::vector<at::Tensor>& shares() const { return shares_; }

 private:
  struct InFlight {
    P2POp transfer;
    at::Tensor value;   // of a receive: what the stage will compute with
    size_t action = 0;  // its position in the list
  };
  struct Made {
    at::Tensor tensor;
    std::optional<Moment> ready;  // null on a CPU
  };

  void Communicate(size_t position);
  InFlight MakeTransfer(size_t position);
  void Compute(size_t position);
  at::Tensor Perform(const Action& action, const at::Tensor& needed);
  void Count(const Action& action);
  at::Tensor Take(size_t value, int stage);
  void Wait(InFlight in_flight);
  void FinishSend(size_t value);

  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  const Values values_;
  const SendReleases releases_;
  const RunParts parts_;
  const c10::Device device_;
  const Options options_;

  size_t next_ = 0;
  StepInFlight step_;
  std::vector<at::Tensor> shares_;
  // By value: made here and not yet used or sent; and on the way.
  std::unordered_map<size_t, Made> made_;
  std::unordered_map<size_t, InFlight> receives_, sends_;
  std::deque<size_t> send_order_;       // with max_sends only
  std::vector<int> missing_gradients_;  // B and W to come, by stage
  int activations_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_RUN_H_
