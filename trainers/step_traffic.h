// Which steps' communication is recorded, and as what.
#ifndef RANKWISE_TRAINERS_STEP_TRAFFIC_H_
#define RANKWISE_TRAINERS_STEP_TRAFFIC_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/comm/traffic.h"
#include "records/record.h"

namespace rankwise {

class Communicator;

// What was seen of one step.
struct StepCommunication {
  std::vector<CommEvent> events;        // none of a step that nobody watches
  std::optional<TrafficRecord> record;  // of a step that is recorded
};

// From the third step of this process on, as many steps as asked for: the first
// two warm up. Begin and End in turn, around each step's communication.
class StepTraffic {
 public:
  static constexpr int64_t kWarmUpSteps = 2;

  // `comm` outlives it; without one there is nothing to see. `recorded` steps
  // become records, `traced` ones are told to the caller only.
  StepTraffic(Communicator* comm, int64_t recorded, int64_t traced)
      : comm_(comm), recorded_(recorded), traced_(traced) {}

  // Whether this step is one of those.
  bool Begin();
  // What was communicated since Begin, or until comm's StopTraffic. The step
  // began at `start`, from which the events' times count; `step` has its
  // number. Leaves the record's step_seconds and exposed_comm_seconds to the
  // caller.
  StepCommunication End(const StepRecord& step,
                        std::chrono::steady_clock::time_point start);

 private:
  Communicator* const comm_;
  const int64_t recorded_, traced_;
  int64_t seen_ = 0;
  bool watching_ = false;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STEP_TRAFFIC_H_
