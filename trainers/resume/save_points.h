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

  // `comm` is nullptr without peers.
  SavePoints(const CheckpointConfig& config, Communicator* comm);

  // Call after step `step`, on every rank. With `ends_epoch` never returns
  // kSave: the run saves at every epoch's end, after its evaluation. Throws the
  // exceptions of failed collectives.
  Next AfterStep(int64_t step, bool ends_epoch);

  // Restarts the interval; call after every save.
  void Saved() { saved_seconds_ = SteadySeconds(); }

 private:
  const CheckpointConfig& config_;
  const std::unique_ptr<Control> control_;  // nullptr without peers
  double saved_seconds_ = SteadySeconds();  // last save, or start
  double agreed_seconds_ = SteadySeconds();
  int64_t agreed_step_ = 0;
  double steps_between_ = 1;    // between agreements
  int64_t next_agreement_ = 0;  // due after this step
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SAVE_POINTS_H_
