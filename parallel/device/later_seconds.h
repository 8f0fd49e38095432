// Seconds of which a device tells only later.
#ifndef RANKWISE_PARALLEL_DEVICE_LATER_SECONDS_H_
#define RANKWISE_PARALLEL_DEVICE_LATER_SECONDS_H_

#include <utility>
#include <vector>

#include "parallel/device/moment.h"

namespace rankwise {

// A sum of what is known already and of stretches between moments, which is
// asked for when the device has come so far, or when waiting is in order:
//
//   Moment begin(device);
//   ... work for the device ...
//   later += LaterSeconds(std::move(begin), Moment(device));
//   ... more steps ...
//   record.seconds = later.Wait();
class LaterSeconds {
 public:
  LaterSeconds() = default;  // 0
  // Known: implicit, so that who has a number gives it where one who has only
  // moments gives those.
  LaterSeconds(double seconds) : known_(seconds) {}  // NOLINT
  // Both of one device; Wait throws otherwise.
  LaterSeconds(Moment from, Moment to);
  LaterSeconds(LaterSeconds&&) noexcept = default;
  LaterSeconds& operator=(LaterSeconds&&) noexcept = default;

  LaterSeconds& operator+=(LaterSeconds other);

  // Whether Wait would not block. Never blocks.
  bool reached() const;
  // The sum; blocks until all its moments are reached.
  double Wait() const;

 private:
  double known_ = 0;
  std::vector<std::pair<Moment, Moment>> stretches_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_LATER_SECONDS_H_
