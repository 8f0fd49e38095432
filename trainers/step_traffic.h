// Which steps' communication is recorded, and as what.
#ifndef RANKWISE_TRAINERS_STEP_TRAFFIC_H_
#define RANKWISE_TRAINERS_STEP_TRAFFIC_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "records/record.h"

namespace rankwise {

class Communicator;

// From the third step of this process on, as many steps as asked for: the first
// two warm up. Begin and End in turn, around each step's communication.
class StepTraffic {
 public:
  static constexpr int64_t kWarmUpSteps = 2;

  // `comm` outlives it; it may be null with `steps` 0.
  StepTraffic(Communicator* comm, int64_t steps) : comm_(comm), steps_(steps) {}

  void Begin();
  // What was communicated since Begin, or until comm's StopTraffic. The step
  // began at `start`, from which the events' times count; `step` has its
  // number. Leaves step_seconds and exposed_comm_seconds to the caller. None
  // for a step that is not recorded.
  std::optional<TrafficRecord> End(const StepRecord& step,
                                   std::chrono::steady_clock::time_point start);

 private:
  Communicator* const comm_;
  const int64_t steps_;
  int64_t seen_ = 0;
  bool recording_ = false;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STEP_TRAFFIC_H_
