#include "trainers/resume/save_points.h"

#include <algorithm>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/launch/signals.h"

namespace rankwise {
namespace {

constexpr double kSecondsBetweenAgreements = 0.5;

}  // namespace

SavePoints::SavePoints(const CheckpointConfig& config, Communicator* comm)
    : config_(config),
      control_(comm != nullptr && comm->has_peers()
                   ? MakeGroupControl(comm->process_group())
                   : nullptr) {}

SavePoints::Next SavePoints::AfterStep(int64_t step, bool ends_epoch) {
  if (step % config_.multiple_of_steps != 0 && !ends_epoch) return Next::kTrain;
  bool save = config_.every_steps > 0 && step % config_.every_steps == 0;
  bool end = false;
  if (step >= next_agreement_) {
    const double now = SteadySeconds();
    std::vector<double> all = {
        Preempted() ? 1.0 : 0.0, now - saved_seconds_,
        (now - agreed_seconds_) / static_cast<double>(step - agreed_step_)};
    if (control_ != nullptr) all = control_->Max(all);
    end = all[0] > 0;
    save |= config_.every_seconds > 0 && all[1] >= config_.every_seconds;
    // At most twice as many steps as before: the first steps, or those after an
    // evaluation, may not be representative.
    steps_between_ =
        std::clamp(kSecondsBetweenAgreements / all[2], 1.0, 2 * steps_between_);
    next_agreement_ = step + static_cast<int64_t>(steps_between_);
    agreed_seconds_ = now;
    agreed_step_ = step;
  }
  if (ends_epoch) save = false;  // the run saves, after the evaluation
  if (save || end) Saved();
  return end ? Next::kSaveAndEnd : save ? Next::kSave : Next::kTrain;
}

}  // namespace rankwise
