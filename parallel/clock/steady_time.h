// The clocks of a rank: steady time for waits, so that setting the machine's
// clock neither ends a wait early nor prolongs it; and the clock for its time
// stamps, which is the host's or a virtual one.
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

struct RankClock {
  // Seconds since an arbitrary origin; never decreases.
  std::function<double()> now;
  // Ranks whose clocks have equal ids read the same clock; 0: not known to be
  // shared.
  double id = 0;
};

// std::chrono::steady_clock, which all processes under the same boot of a
// kernel and in the same time namespace share; its id is a hash of the two. On
// a thread in virtual time, the virtual clock, which all ranks share.
RankClock HostClock();

// Sleeps while more than 0.3 ms are left, then yields the core, which ranks may
// share. Virtual time advances instead.
void WaitUntil(const RankClock& clock, double time);

// While it lives, the thread that made it is a rank in virtual time:
// communication between the ranks of a FakeWorld takes exactly its configured
// costs, without any real waiting. HostClock reads it, WaitUntil advances it.
// It starts at 0. A call ends when its cost has passed since the last rank
// entered it; a rank that waits for it continues at that time, or at its own
// time if that is later. Times are whole nanoseconds.
//
// Either all ranks of a FakeWorld are in virtual time or none. A rank waits for
// its own calls by Work::wait, which is when their futures complete; timeouts
// are real time. Example:
//
//   FakeWorld world(2, {.alpha_us = 50});
//   std::thread peer([&] {
//     VirtualTime time;
//     time.Advance(0.02);  // computes for 20 ms
//     MakeFakeProcessGroup(world.backend(1))->barrier()->wait();
//     // time.now() is 20.05 ms, on rank 0 too
//   });
//
// Only its own thread may call it.
class VirtualTime {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  VirtualTime();
  ~VirtualTime();
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  // Null if this thread is in real time.
  static VirtualTime* OfThisThread();

  TimePoint now() const { return now_; }
  // Stands for computing or sleeping. Rounds to nanoseconds; negative counts as
  // 0.
  void Advance(double seconds);
  // Runs `event` with now() set to `when`, even if that has passed; afterwards
  // now() is the later of `when` and its value before the call.
  void RunAt(TimePoint when, const std::function<void()>& event);

 private:
  TimePoint now_{};
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CLOCK_STEADY_TIME_H_
