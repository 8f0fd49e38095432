#include "parallel/comm/fake_backend_timeline.h"

#include <sys/prctl.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace rankwise {
namespace {

struct Task {
  std::function<void()> work;
  FakeTimeline::Clock::time_point when;
  std::function<void()> announce;
};

}  // namespace

struct FakeTimeline::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;  // whose work is yet to be done
  std::multimap<Clock::time_point, std::function<void()>> announcements;
  std::multimap<Clock::time_point, std::function<void()>> checks;
  bool stopping = false;

  // The next callback that may run now; empty if none. Needs `mutex`.
  std::function<void()> Take();
  // Sleeps until something may have become due. Needs `lock` on `mutex`.
  void Sleep(std::unique_lock<std::mutex>& lock);
};

std::function<void()> FakeTimeline::State::Take() {
  if (!tasks.empty()) {
    Task task = std::move(tasks.front());
    tasks.pop_front();
    return [this, task = std::move(task)] {
      task.work();
      std::lock_guard<std::mutex> lock(mutex);
      announcements.emplace(task.when, task.announce);
    };
  }
  for (auto* queue : {&announcements, &checks}) {
    const auto first = queue->begin();
    if (first == queue->end()) continue;
    if (first->first > Clock::now() && !stopping) continue;
    std::function<void()> callback = std::move(first->second);
    queue->erase(first);
    return callback;
  }
  return nullptr;
}

void FakeTimeline::State::Sleep(std::unique_lock<std::mutex>& lock) {
  auto until = Clock::time_point::max();
  for (auto* queue : {&announcements, &checks}) {
    if (!queue->empty()) until = std::min(until, queue->begin()->first);
  }
  if (until == Clock::time_point::max()) {
    changed.wait(lock);
  } else {
    changed.wait_until(lock, until);
  }
}

FakeTimeline::FakeTimeline()
    : state_(std::make_shared<State>()), thread_(Run, state_) {}

FakeTimeline::~FakeTimeline() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    state_->checks.clear();
    state_->changed.notify_all();
  }
  // A callback may own the last reference to whatever owns this.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void FakeTimeline::Schedule(std::function<void()> work, Clock::time_point when,
                            std::function<void()> announce) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->tasks.push_back({std::move(work), when, std::move(announce)});
  state_->changed.notify_all();
}

void FakeTimeline::CheckAt(Clock::time_point when,
                           std::function<void()> check) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->stopping) return;
  state_->checks.emplace(when, std::move(check));
  state_->changed.notify_all();
}

void FakeTimeline::Run(const std::shared_ptr<State>& state) {
  // The kernel may wake a sleeper up to 50 us late by default; 1 ns instead.
  prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    if (std::function<void()> callback = state->Take()) {
      lock.unlock();
      callback();
      callback = nullptr;  // what it owns may call back into this timeline
      lock.lock();
    } else if (state->stopping) {
      return;
    } else {
      state->Sleep(lock);
    }
  }
}

}  // namespace rankwise
