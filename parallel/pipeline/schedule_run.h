// One rank's part of one step: performs the actions of its list.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_RUN_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_RUN_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/channel.h"
#include "parallel/pipeline/executor_step.h"
#include "parallel/pipeline/send_release.h"
#include "parallel/pipeline/stage_runner.h"
#include "parallel/pipeline/wire_format.h"

namespace rankwise {

using StageRunners = std::vector<std::unique_ptr<StageRunner>>;

// Receives are posted at their place in the list and waited for by the action
// that needs them. Sends are not waited for: their buffers are freed once
// something that was received shows that they have arrived, and the last ones
// at the end of the step. Used once, by one thread. All references outlive it.
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

  // `runners`: by stage, null where another rank runs it.
  ScheduleRun(const Schedule& schedule, Channel& channel, WireBuffers& buffers,
              StageRunners& runners, Options options);

  // Called once. Leaves loss, waits and end_seconds to the caller.
  ExecutorStep Run();

  // The last stage's shares of the loss by micro-batch; empty on other ranks.
  const std::vector<at::Tensor>& shares() const { return shares_; }

 private:
  struct InFlight {
    Transfer transfer;
    at::Tensor value;   // of a receive: what the stage will compute with
    size_t action = 0;  // its position in the list
  };

  void Communicate(size_t begin, size_t end);
  InFlight MakeTransfer(size_t position);
  void Compute(size_t position);
  at::Tensor Perform(const Action& action, const at::Tensor& needed);
  void Count(const Action& action);
  at::Tensor Take(size_t value);
  void Finish(InFlight in_flight);
  void FinishSend(size_t value);

  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  const Values values_;
  const SendReleases releases_;
  Channel& channel_;
  WireBuffers& buffers_;
  StageRunners& runners_;
  const Options options_;

  ExecutorStep step_;
  std::vector<at::Tensor> shares_;
  // By value: made here and not yet used or sent; and on the way.
  std::unordered_map<size_t, at::Tensor> made_;
  std::unordered_map<size_t, InFlight> receives_, sends_;
  std::deque<size_t> send_order_;       // with max_sends only
  std::vector<int> missing_gradients_;  // B and W to come, by stage
  int activations_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_RUN_H_
