#include "parallel/comm/exposed_comm.h"

#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

void ExposedComm::Wait(c10d::Work& work, c10::Device device) {
  DeviceEvent start(device);
  work.wait();
  sum_ += PendingDuration(std::move(start), DeviceEvent(device));
}

}  // namespace rankwise
