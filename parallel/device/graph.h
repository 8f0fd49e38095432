// A device's work, captured once and replayed as a whole by one launch of the
// host (CUDA graphs).
#ifndef RANKWISE_PARALLEL_DEVICE_GRAPH_H_
#define RANKWISE_PARALLEL_DEVICE_GRAPH_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"

namespace rankwise {

// Not thread-safe. Only CUDA implements it; an interface, so that its users can
// be tested without CUDA.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Calls `work` once, on the current stream or, if that is the default stream,
  // on another; the device work that it submits is captured and does not run.
  // Tensors created by `work` are in memory of the graph and are overwritten by
  // each Replay; those that it reads must keep their addresses. Other threads
  // may use the device meanwhile. FailedPrecondition, with the device's
  // message, if a part of `work` cannot be captured (a read by the host, an
  // allocation outside the pool); else the error of `work`. After an error no
  // device work has run, but the host's part of `work` has. Call once.
  virtual absl::Status Capture(const std::function<absl::Status()>& work) = 0;

  // Launches the captured work on the current stream. Call after Capture.
  virtual void Replay() = 0;
};

// Unimplemented in a build without CUDA, InvalidArgument for a device other
// than a GPU.
absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeDeviceGraph(
    c10::Device device);

// Whether this thread's current stream on `device` is being captured. Queries
// of the device's progress (DeviceEvent::reached) would break the capture.
bool IsCapturing(c10::Device device);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_GRAPH_H_
