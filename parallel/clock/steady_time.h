// Clocks of a rank: steady time for waits, so that setting the machine's clock
// neither ends a wait early nor prolongs it; and the clock of its time stamps,
// the host's or a virtual one.
#ifndef RANKWISE_PARALLEL_CLOCK_STEADY_TIME_H_
#define RANKWISE_PARALLEL_CLOCK_STEADY_TIME_H_

#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"

namespace rankwise {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

// Nanoseconds and seconds of the steady clock.
inline int64_t SteadyNowNs() { return SteadyNow().time_since_epoch().count(); }
inline double SteadySeconds() {
  return std::chrono::duration<double>(SteadyNow().time_since_epoch()).count();
}

inline absl::Duration ElapsedSince(SteadyTime start) {
  return absl::FromChrono(SteadyNow() - start);
}

// The time `patience` after construction; never for InfiniteDuration().
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

// Runs `action` on a separate thread and waits for it. Returns false after
// `patience`: the thread continues, and objects that `action` uses must outlive
// it. An exception ends `action` like a return.
bool RunWithin(absl::Duration patience, std::function<void()> action);

struct RankClock {
  // Seconds since an arbitrary origin; never decreases.
  std::function<double()> now;
  // Equal for ranks that read the same clock; 0 if it is not known to be
  // shared.
  double id = 0;
};

// Returns std::chrono::steady_clock, which all processes of one boot of a
// kernel and one time namespace share; its id is a hash of the two. On a thread
// in virtual time, returns the virtual clock, which all ranks share.
RankClock HostClock();

// Blocks until `clock` shows `time`. Sleeps while more than 0.3 ms are left,
// then yields the core, which ranks may share. Virtual time advances instead.
void WaitUntil(const RankClock& clock, double time);

// Puts the thread that constructs it into virtual time, as a rank, while it
// exists: communication between the ranks of a FakeWorld then takes exactly its
// configured costs, without real waiting. HostClock reads the virtual time,
// WaitUntil advances it. It starts at 0. A call ends when its cost has passed
// since the last rank entered it; a rank that waits for it continues at that
// time, or at its own time if that is later. Times are whole nanoseconds.
//
// Either all ranks of a FakeWorld are in virtual time or none. A rank waits for
// its own calls by Work::wait, which completes their futures; timeouts are in
// real time. Example:
//
//   FakeWorld world(2, {.alpha_us = 50});
//   std::thread peer([&] {
//     VirtualTime time;
//     time.Advance(0.02);  // computes for 20 ms
//     MakeFakeProcessGroup(world.backend(1))->barrier()->wait();
//     // time.now() is 20.05 ms, on rank 0 too
//   });
//
// Only the constructing thread may call it.
class VirtualTime {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  VirtualTime();
  ~VirtualTime();
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  // Returns nullptr if this thread is in real time.
  static VirtualTime* OfThisThread();

  TimePoint now() const { return now_; }
  // Simulates computing or sleeping. Rounds to nanoseconds; negative counts as
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
