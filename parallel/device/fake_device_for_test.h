// A simulated device for tests of code that must not wait for one: the test
// controls its progress.
#ifndef RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_FOR_TEST_H_
#define RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_FOR_TEST_H_

#include <functional>
#include <vector>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"

namespace rankwise {

// Two devices of the type PrivateUse1, with streams, events and tensors like a
// GPU's. Streams and events do not progress until Run. Tensors are in host
// memory, and operators on them run at once on the CPU, whatever the streams
// wait for; reading one on the host waits for the current stream. One set per
// process, for one thread.
class FakeDevice {
 public:
  // Index 0 or 1.
  static c10::Device At(int index);

  // Clears streams, counts and the callback. Call before every test.
  static void Reset();

  // Runs the pending entries of `stream`, with the device's clock at `seconds`,
  // up to a wait for an event that is not reached.
  static void Run(const c10::Stream& stream, double seconds);
  // The same for all streams of `device`, until none can progress.
  static void RunAll(c10::Device device, double seconds);
  // Whether `stream` has no pending entries.
  static bool Idle(const c10::Stream& stream);

  // Sets the callback for waits of the host, which must run the device. Without
  // a callback, or if it does not run the device, the wait throws c10::Error.
  static void WhenHostWaits(std::function<void()> run);
  // Number of waits of the host for an event, a stream or a device.
  static int waits();

  // The streams on which data was copied to a device, one per copy.
  static std::vector<c10::Stream> copies();
  // The streams on which tensors were recorded (Tensor::record_stream).
  static std::vector<c10::Stream> recorded();
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_FOR_TEST_H_
