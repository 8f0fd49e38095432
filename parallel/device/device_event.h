// Times of a device's work, from events in its streams: the host's clock does
// not show the progress of a device.
#ifndef RANKWISE_PARALLEL_DEVICE_DEVICE_EVENT_H_
#define RANKWISE_PARALLEL_DEVICE_DEVICE_EVENT_H_

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"

namespace c10 {
struct Event;
}

namespace rankwise {

// Returns the current stream of an accelerator, or the CPU's only one.
c10::Stream CurrentStream(c10::Device device);

// The time at which a device reaches a point in a stream's work. Not a number:
// the functions below convert two of them to seconds, and return nullopt, or
// wait, until the device has reached both. On a CPU it is a time of the host's
// clock, and always reached.
class DeviceEvent {
 public:
  // After all work submitted so far to `device`'s current stream.
  explicit DeviceEvent(c10::Device device);
  // After all work submitted so far to `stream`.
  explicit DeviceEvent(const c10::Stream& stream);
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&&) noexcept;
  DeviceEvent& operator=(DeviceEvent&&) noexcept;

  c10::Device device() const { return device_; }
  // Never blocks.
  bool reached() const;
  // Blocks the host until the device has reached it.
  void Wait() const;
  // Makes work submitted to `stream` from now on wait for this event; does not
  // block the host.
  void Block(const c10::Stream& stream) const;
  // Host time at which the event was recorded; not when the device reached it.
  std::chrono::steady_clock::time_point given() const { return given_; }

 private:
  friend std::optional<double> SecondsBetween(const DeviceEvent& from,
                                              const DeviceEvent& to);

  c10::Device device_;
  std::chrono::steady_clock::time_point given_;
  std::unique_ptr<c10::Event> event_;  // nullptr on a CPU
};

// Returns nullopt until both are reached. Throws c10::Error for events of two
// devices, whose clocks are unrelated: see HostAnchor.
std::optional<double> SecondsBetween(const DeviceEvent& from,
                                     const DeviceEvent& to);

// The same, but blocks the host until both are reached.
double WaitForSecondsBetween(const DeviceEvent& from, const DeviceEvent& to);

// Blocks until all streams of `device` are idle; returns at once on a CPU.
// Work::wait does not block on a GPU: it only orders streams.
void SynchronizeDevice(c10::Device device);

// A sum of known seconds and of intervals between events, to be read once the
// device has reached them, or when waiting is acceptable:
//
//   DeviceEvent begin(device);
//   ... work for the device ...
//   later += PendingDuration(std::move(begin), DeviceEvent(device));
//   ... more steps ...
//   record.seconds = later.Wait();
class PendingDuration {
 public:
  PendingDuration() = default;  // 0
  // Implicit, so that callers with a number pass it where others pass events.
  PendingDuration(double seconds) : known_(seconds) {}  // NOLINT
  // Both must be of one device; otherwise Wait throws.
  PendingDuration(DeviceEvent from, DeviceEvent to);
  PendingDuration(PendingDuration&&) noexcept = default;
  PendingDuration& operator=(PendingDuration&&) noexcept = default;

  PendingDuration& operator+=(PendingDuration other);

  // Whether Wait would not block. Never blocks.
  bool reached() const;
  // Returns the sum in seconds; blocks until all its events are reached.
  double Wait() const;

 private:
  double known_ = 0;
  std::vector<std::pair<DeviceEvent, DeviceEvent>> stretches_;
};

// Relates a device's clock to the host's, so that events of several devices can
// be expressed on one clock.
class HostAnchor {
 public:
  // Blocks until `device`'s current stream is idle.
  explicit HostAnchor(c10::Device device);

  // Returns the time of `moment` in seconds of the steady clock; nullopt until
  // it is reached. The two clocks drift apart by some microseconds per second:
  // create a new anchor where that matters.
  std::optional<double> HostSeconds(const DeviceEvent& moment) const;

 private:
  DeviceEvent moment_;
  double host_seconds_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_DEVICE_EVENT_H_
