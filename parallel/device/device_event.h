// Times of what a device does, from events in its streams: the host's clock
// says nothing of a device that still works.
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

// The current stream of an accelerator, or the CPU's only one.
c10::Stream CurrentStream(c10::Device device);

// When a device gets to a place in a stream's work. No number by itself: the
// only ways to seconds are below, and give none, or wait, while the device has
// not come so far. On a CPU a moment is the host's clock, and always reached.
class DeviceEvent {
 public:
  // Now: after all that has been given to `device`'s current stream.
  explicit DeviceEvent(c10::Device device);
  // After all that has been given to `stream`.
  explicit DeviceEvent(const c10::Stream& stream);
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&&) noexcept;
  DeviceEvent& operator=(DeviceEvent&&) noexcept;

  c10::Device device() const { return device_; }
  // Never blocks.
  bool reached() const;
  // Blocks the host until the device is there.
  void Wait() const;
  // What `stream` is given from now on waits for this moment; the host does
  // not.
  void Block(const c10::Stream& stream) const;
  // When the host gave the mark; not when the device reached it.
  std::chrono::steady_clock::time_point given() const { return given_; }

 private:
  friend std::optional<double> SecondsBetween(const DeviceEvent& from,
                                              const DeviceEvent& to);

  c10::Device device_;
  std::chrono::steady_clock::time_point given_;
  std::unique_ptr<c10::Event> event_;  // null on a CPU
};

// None until both are reached. Throws c10::Error for moments of two devices,
// whose clocks have nothing in common: see HostAnchor.
std::optional<double> SecondsBetween(const DeviceEvent& from,
                                     const DeviceEvent& to);

// Blocks until both are reached.
double WaitForSecondsBetween(const DeviceEvent& from, const DeviceEvent& to);

// Returns when all streams of `device` are idle; at once on a CPU. What a
// Work's wait does not do on a GPU: that only orders streams.
void SynchronizeDevice(c10::Device device);

// A sum of what is known already and of stretches between moments, which is
// read when the device has come so far, or when waiting is in order:
//
//   DeviceEvent begin(device);
//   ... work for the device ...
//   later += PendingDuration(std::move(begin), DeviceEvent(device));
//   ... more steps ...
//   record.seconds = later.Wait();
class PendingDuration {
 public:
  PendingDuration() = default;  // 0
  // Known: implicit, so that who has a number gives it where one who has only
  // moments gives those.
  PendingDuration(double seconds) : known_(seconds) {}  // NOLINT
  // Both of one device; Wait throws otherwise.
  PendingDuration(DeviceEvent from, DeviceEvent to);
  PendingDuration(PendingDuration&&) noexcept = default;
  PendingDuration& operator=(PendingDuration&&) noexcept = default;

  PendingDuration& operator+=(PendingDuration other);

  // Whether Wait would not block. Never blocks.
  bool reached() const;
  // The sum; blocks until all its moments are reached.
  double Wait() const;

 private:
  double known_ = 0;
  std::vector<std::pair<DeviceEvent, DeviceEvent>> stretches_;
};

// Where a device's clock stands on the host's, so that moments of several
// devices can be told on one clock.
class HostAnchor {
 public:
  // Blocks until `device`'s current stream is idle.
  explicit HostAnchor(c10::Device device);

  // In seconds of the steady clock; none until it is reached. The two clocks
  // drift apart by some microseconds a second: anchor anew where it matters.
  std::optional<double> HostSeconds(const DeviceEvent& moment) const;

 private:
  DeviceEvent moment_;
  double host_seconds_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_DEVICE_EVENT_H_
