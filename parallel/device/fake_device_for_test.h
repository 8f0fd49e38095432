// A device for tests of what does not wait for one: it is as far as the test
// says.
#ifndef RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_FOR_TEST_H_
#define RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_FOR_TEST_H_

#include <functional>
#include <vector>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"

namespace rankwise {

// Two devices of the type PrivateUse1, with streams, events and tensors as a
// GPU has them. Streams and events stand still until Run. Tensors lie in host
// memory, and operators on them run at once on the CPU, whatever the streams
// wait for; reading one by the host waits for the current stream. One process
// has one set of them, for one thread.
class FakeDevice {
 public:
  // Index 0 or 1.
  static c10::Device At(int index);

  // Forgets streams, counts and the callback. Before every test.
  static void Reset();

  // `stream` does what it was given, the device's clock standing at `seconds`,
  // up to where it waits for an event that is not reached.
  static void Run(const c10::Stream& stream, double seconds);
  // The same of all streams of `device`, until none gets further.
  static void RunAll(c10::Device device, double seconds);
  // Whether `stream` has done all that it was given.
  static bool Idle(const c10::Stream& stream);

  // Called where the host waits for the device; it must let the device run.
  // Without one, or where it does not, the waiting throws c10::Error.
  static void WhenHostWaits(std::function<void()> run);
  // How often the host had to wait for an event, a stream or a device.
  static int waits();

  // The streams that data was copied to a device on, copy by copy.
  static std::vector<c10::Stream> copies();
  // The streams that tensors were recorded on (Tensor::record_stream).
  static std::vector<c10::Stream> recorded();
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_FOR_TEST_H_
