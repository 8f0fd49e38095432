// The clock of the fake backend: a thread that does work at once and announces
// it at the time it is supposed to have taken.
#ifndef RANKWISE_PARALLEL_COMM_FAKE_BACKEND_TIMELINE_H_
#define RANKWISE_PARALLEL_COMM_FAKE_BACKEND_TIMELINE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace rankwise {

// Thread-safe. Callbacks run one after another on the timeline's thread and
// must not throw; they may call Schedule.
class FakeTimeline {
 public:
  using Clock = std::chrono::steady_clock;

  FakeTimeline();
  // Runs what is pending at once, without waiting for its time.
  ~FakeTimeline();
  FakeTimeline(const FakeTimeline&) = delete;
  FakeTimeline& operator=(const FakeTimeline&) = delete;

  // Runs `work` as soon as possible, then `announce` not before `when`.
  void Schedule(std::function<void()> work, Clock::time_point when,
                std::function<void()> announce);

  // Runs `check` not before `when`; never, if the timeline ends first.
  void CheckAt(Clock::time_point when, std::function<void()> check);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // outlives a detached thread's loop
  std::thread thread_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_FAKE_BACKEND_TIMELINE_H_
