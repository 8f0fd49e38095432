// After which steps a run saves a checkpoint, and whether it ends there because
// its scheduler needs the machine.
#ifndef RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_
#define RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_

#include <cstdint>
#include <memory>

#include "parallel/clock/steady_time.h"
#include "parallel/comm/control.h"
#include "trainers/loop/config.h"

namespace rankwise {

// Ranks have clocks of their own, and a signal may reach one of them only: they
// agree by a message of three numbers after the first step and then about twice
// a second, after each step where steps take longer.
class SavePoints {
 public:
  enum class Next { kTrain, kSave, kSaveAndEnd };

  // `comm` is null without peers.
  SavePoints(const CheckpointConfig& config, Communicator* comm);

  // After step `step`, on every rank. Throws what a failed collective throws.
  Next AfterStep(int64_t step);

  // A checkpoint was saved for another reason.
  void Saved() { saved_seconds_ = SteadySeconds(); }

 private:
  const CheckpointConfig& config_;
  const std::unique_ptr<Control> control_;  // null without peers
  double saved_seconds_ = SteadySeconds();  // the last, or the start
  double agreed_seconds_ = SteadySeconds();
  int64_t agreed_step_ = 0;
  double steps_between_ = 1;    // two agreements
  int64_t next_agreement_ = 0;  // the step after which it is due
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_
