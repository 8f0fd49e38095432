// Time for waits, by the steady clock: setting the machine's clock neither ends
// a wait early nor makes it last for ever.
#ifndef RANKWISE_PARALLEL_CLOCK_STEADY_TIME_H_
#define RANKWISE_PARALLEL_CLOCK_STEADY_TIME_H_

#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"

namespace rankwise {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

// Nanoseconds and seconds of that clock.
inline int64_t SteadyNowNs() { return SteadyNow().time_since_epoch().count(); }
inline double SteadySeconds() {
  return std::chrono::duration<double>(SteadyNow().time_since_epoch()).count();
}

inline absl::Duration ElapsedSince(SteadyTime start) {
  return absl::FromChrono(SteadyNow() - start);
}

// The moment `patience` after its construction; never for InfiniteDuration().
class Deadline {
 public:
  explicit Deadline(absl::Duration patience) : patience_(patience) {}

  // Negative once it has passed.
  absl::Duration left() const { return patience_ - ElapsedSince(start_); }
  bool passed() const { return left() <= absl::ZeroDuration(); }

 private:
  SteadyTime start_ = SteadyNow();
  absl::Duration patience_;
};

// Calls `action` on a thread of its own, and waits for it. False when that
// takes longer than `patience`: the thread goes on, and what `action` uses must
// outlive it. An exception ends `action` as a return does.
bool RunWithin(absl::Duration patience, std::function<void()> action);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CLOCK_STEADY_TIME_H_
