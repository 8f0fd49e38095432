#include "parallel/comm/job_clock.h"

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_clock.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

JobClock::JobClock(Communicator* comm) {
  if (comm == nullptr || comm->world_size() == 1 || comm->backend() == "fake")
    return;
  control_ = MakeGroupControl(comm->process_group());
  sync_ = std::make_unique<ClockSync>(*control_, HostClock());
}

}  // namespace rankwise
