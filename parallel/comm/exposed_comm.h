// Time for which a rank's computation waits for communication alone.
#ifndef RANKWISE_PARALLEL_COMM_EXPOSED_COMM_H_
#define RANKWISE_PARALLEL_COMM_EXPOSED_COMM_H_

#include <utility>

#include "c10/core/Device.h"
#include "parallel/device/device_event.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

// Accumulates the exposed time along one axis of the mesh. Used by one thread
// at a time, as forward and backward do.
class ExposedComm {
 public:
  // Waits until `work` is done (on an accelerator the current stream waits, not
  // the host), and adds the elapsed time. Rethrows the exception of `work`.
  void Wait(c10d::Work& work, c10::Device device) {
    DeviceEvent start(device);
    work.wait();
    sum_ += PendingDuration(std::move(start), DeviceEvent(device));
  }

  // Returns the sum and resets it to 0.
  PendingDuration Take() { return std::exchange(sum_, PendingDuration()); }

 private:
  PendingDuration sum_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_EXPOSED_COMM_H_
