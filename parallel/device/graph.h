// A device's work recorded once and started again as a whole, with one launch
// by the host (CUDA graphs).
#ifndef RANKWISE_PARALLEL_DEVICE_GRAPH_H_
#define RANKWISE_PARALLEL_DEVICE_GRAPH_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"

namespace rankwise {

// Not thread-safe. Only CUDA has one; an interface, so that what is built on it
// can be tested without.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Calls `work` once on a stream of its own; what it gives to the device is
  // recorded and does not run. Tensors that `work` makes live in memory of the
  // graph and are written again by each Replay; those it reads must stay where
  // they are. Other threads may go on using the device.
  // FailedPrecondition, with what the device said, where something in `work`
  // cannot be recorded (a read by the host, an allocation outside the pool);
  // else `work`'s own error. Nothing has run then, but the host's side of
  // `work` has. Called once.
  virtual absl::Status Capture(const std::function<absl::Status()>& work) = 0;

  // Starts what was recorded, on the current stream. After Capture.
  virtual void Replay() = 0;
};

// Unimplemented in a build without CUDA, InvalidArgument for a device that is
// no GPU.
absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeDeviceGraph(
    c10::Device device);

// Whether this thread's current stream on `device` is recording. What asks a
// device how far it is (DeviceEvent::reached) would spoil the recording.
bool IsCapturing(c10::Device device);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_GRAPH_H_
