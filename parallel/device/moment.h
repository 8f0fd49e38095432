// Times of what a device does, from events in its streams: the host's clock
// says nothing of a device that still works.
#ifndef RANKWISE_PARALLEL_DEVICE_MOMENT_H_
#define RANKWISE_PARALLEL_DEVICE_MOMENT_H_

#include <chrono>
#include <memory>
#include <optional>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"

namespace c10 {
struct Event;
}

namespace rankwise {

// When a device gets to a place in a stream's work. No number by itself: the
// only ways to seconds are below, and give none, or wait, while the device has
// not come so far. On a CPU a moment is the host's clock, and always reached.
class Moment {
 public:
  // Now: after all that has been given to `device`'s current stream.
  explicit Moment(c10::Device device);
  // After all that has been given to `stream`.
  explicit Moment(const c10::Stream& stream);
  ~Moment();
  Moment(Moment&&) noexcept;
  Moment& operator=(Moment&&) noexcept;

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
  friend std::optional<double> SecondsBetween(const Moment& from,
                                              const Moment& to);

  c10::Device device_;
  std::chrono::steady_clock::time_point given_;
  std::unique_ptr<c10::Event> event_;  // null on a CPU
};

// None until both are reached. Throws c10::Error for moments of two devices,
// whose clocks have nothing in common: see HostAnchor.
std::optional<double> SecondsBetween(const Moment& from, const Moment& to);

// Blocks until both are reached.
double WaitForSecondsBetween(const Moment& from, const Moment& to);

// Where a device's clock stands on the host's, so that moments of several
// devices can be told on one clock.
class HostAnchor {
 public:
  // Blocks until `device`'s current stream is idle.
  explicit HostAnchor(c10::Device device);

  // In seconds of the steady clock; none until it is reached. The two clocks
  // drift apart by some microseconds a second: anchor anew where it matters.
  std::optional<double> HostSeconds(const Moment& moment) const;

 private:
  Moment moment_;
  double host_seconds_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_MOMENT_H_
