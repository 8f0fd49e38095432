// Decides after which steps a run saves a checkpoint, and whether it ends there
// because it is preempted.
#ifndef RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_
#define RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_

#include <cstdint>
#include <memory>

#include "parallel/clock/steady_time.h"
#include "parallel/comm/control.h"
#include "trainers/loop/config.h"

namespace rankwise {

// Clocks differ between ranks, and a signal may reach only one of them. The
// ranks therefore agree, by an all-reduce of three numbers, after the first
// step and then about twice a second, or after every step if steps take longer.
class SavePoints {
 public:
  enum class Next { kTrain, kSave, kSaveAndEnd };

  // `comm` is null without peers.
  SavePoints(const CheckpointConfig& config, Communicator* comm);

  // After step `step`, on every rank. With `ends_epoch` kSave is not returned:
  // the run saves every epoch's end, after its evaluation. Throws what a failed
  // collective throws.
  Next AfterStep(int64_t step, bool ends_epoch);

  // Restarts the interval: a checkpoint was saved, for whatever reason.
  void Saved() { saved_seconds_ = SteadySeconds(); }

 private:
  const CheckpointConfig& config_;
  const std::unique_ptr<Control> control_;  // null without peers
  double saved_seconds_ = SteadySeconds();  // last save, or start
  double agreed_seconds_ = SteadySeconds();
  int64_t agreed_step_ = 0;
  double steps_between_ = 1;    // between agreements
  int64_t next_agreement_ = 0;  // due after this step
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_
