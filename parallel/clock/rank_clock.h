// The clock that a rank takes its stamps from: the host's, or a virtual one.
#ifndef RANKWISE_PARALLEL_CLOCK_RANK_CLOCK_H_
#define RANKWISE_PARALLEL_CLOCK_RANK_CLOCK_H_

#include <chrono>
#include <functional>

namespace rankwise {

struct RankClock {
  // Now, in seconds since a time of its own; never goes back.
  std::function<double()> now;
  // Ranks whose clocks have the same id read the same clock; 0: this one is
  // nobody else's.
  double id = 0;
};

// std::chrono::steady_clock: one clock for all processes that share a boot of a
// kernel and a time namespace, which is what its id is made of. On a thread in
// virtual time, that: one clock for all ranks.
RankClock HostClock();

// Sleeps while more than 0.3 ms are left, then yields the core, which ranks may
// share. Virtual time advances instead.
void WaitUntil(const RankClock& clock, double time);

// While it lives, the thread that made it is a rank in virtual time: what
// happens between the ranks of a FakeWorld takes exactly what its costs say,
// and passes at once. HostClock reads it, WaitUntil advances it. It starts at
// 0; a call is over when the last rank has entered it and its cost has passed,
// and who waits for it goes on then, or later where its own time is later.
// Times are whole nanoseconds.
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

  // Null: this thread is in real time.
  static VirtualTime* OfThisThread();

  TimePoint now() const { return now_; }
  // Computes, or sleeps; nothing below half a nanosecond.
  void Advance(double seconds);
  // Runs `event` at the time `when`, also where that has passed, and goes on at
  // the later of `when` and now().
  void RunAt(TimePoint when, const std::function<void()>& event);

 private:
  TimePoint now_{};
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CLOCK_RANK_CLOCK_H_
