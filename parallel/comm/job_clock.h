// What ranks stamp their events with, so that these can be laid side by side.
#ifndef RANKWISE_PARALLEL_COMM_JOB_CLOCK_H_
#define RANKWISE_PARALLEL_COMM_JOB_CLOCK_H_

#include <memory>

#include "parallel/comm/clock_sync.h"
#include "parallel/comm/control.h"

namespace rankwise {

class Communicator;

// Turns times of this rank's steady clock, in seconds, into rank 0's.
class JobClock {
 public:
  // Collective: ranks that do not read rank 0's clock exchange a few messages
  // with it. Throws what a failed message throws. Null, or the fake backend,
  // whose other ranks have no clock: times stay as they are.
  explicit JobClock(Communicator* comm);

  double RootTime(double own_seconds) const {
    return sync_ == nullptr ? own_seconds : sync_->RootTime(own_seconds);
  }
  // Bound of the error of RootTime now; it grows by 50 us a second.
  double error_seconds() const {
    return sync_ == nullptr ? 0 : sync_->error_seconds();
  }

 private:
  std::unique_ptr<Control> control_;
  std::unique_ptr<ClockSync> sync_;  // null with one clock only
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_JOB_CLOCK_H_
