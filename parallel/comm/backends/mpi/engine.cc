#include "parallel/comm/backends/mpi/engine.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace rankwise {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Interval between checks that operations in flight can still complete.
constexpr milliseconds kLook(20);
// Delay from a rank's end to the failure of operations that wait for it: its
// last messages may still arrive.
constexpr milliseconds kForLastMessages(200);
// Interval between queries of the store about operations in flight.
constexpr milliseconds kQuestion(400);

// Grows with the time already waited.
class Pause {
 public:
  // Spins for the first `spin`. Not with sched_yield, after which programs that
  // share the core run a whole time slice, whereas a thread that has slept gets
  // the core back soon.
  explicit Pause(microseconds spin) : spin_(spin) {}

  void Wait() const {
    const nanoseconds waited = SteadyNow() - start_;
    if (waited < spin_) return;
    const nanoseconds pause =
        std::min<nanoseconds>(waited / 8, microseconds(250));
    const timespec time = {.tv_sec = 0, .tv_nsec = pause.count()};
    nanosleep(&time, nullptr);
  }

 private:
  const microseconds spin_;
  const SteadyTime start_ = SteadyNow();
};

clockid_t ClockOfThisThread() {
  clockid_t clock = 0;
  return pthread_getcpuclockid(pthread_self(), &clock) == 0 ? clock : 0;
}

// Detects a waiting thread by its processor time.
class IdleThread {
 public:
  // Whether the thread was idle for the last 20 us or more, by its `clock`.
  bool IsIdle(clockid_t clock) {
    constexpr microseconds kWindow(20);
    const SteadyTime now = SteadyNow();
    if (now < looked_ + kWindow) return is_idle_;
    timespec used = {};
    const bool is_known = clock_gettime(clock, &used) == 0;
    const nanoseconds total =
        std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
    is_idle_ =
        is_known && clock == clock_ && total - used_ < (now - looked_) / 4;
    clock_ = clock;
    used_ = total;
    looked_ = now;
    return is_idle_;
  }

 private:
  clockid_t clock_ = 0;
  nanoseconds used_{0};
  SteadyTime looked_ = {};
  bool is_idle_ = false;
};

std::exception_ptr Error(const char* title, const std::string& why) {
  try {
    C10_THROW_ERROR(DistBackendError, absl::StrCat(title, ": ", why));
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

// Returns the message of a rank of the group that has left, or "".
std::string WhyEnded(c10d::Store& store) {
  try {
    if (!store.check({kMpiEndedKey})) return "";
    return store.get_to_str(kMpiEndedKey);
  } catch (const std::exception&) {
    return "the ranks' store is gone";
  }
}

}  // namespace

void MpiEngine::Submit(const MpiWorkPtr& work) {
  submitter_ = ClockOfThisThread();
  {
    const std::lock_guard lock(queue_);
    const std::string& why = work->group_->why_broken;
    if (!why.empty()) {
      std::rethrow_exception(Error(
          work->call_.title, absl::StrCat("an earlier call failed: ", why)));
    }
    submitted_.push_back(work);
    ++pending_;
  }
  // Otherwise the polling thread starts it.
  if (const std::unique_lock calls(calls_, std::try_to_lock); calls) {
    const std::lock_guard works(works_);
    StartSubmitted();
  }
  if (asleep_) {
    const std::lock_guard lock(sleep_);
    wake_.notify_one();
  }
}

void MpiEngine::StartSubmitted() {
  std::vector<MpiWorkPtr> work;
  {
    const std::lock_guard lock(queue_);
    work.swap(submitted_);
  }
  for (MpiWorkPtr& each : work) {
    each->Start(mpi_);
    in_flight_.push_back(std::move(each));
  }
}

std::vector<MpiWorkPtr> MpiEngine::TakeEnded() {
  std::vector<MpiWorkPtr> ended;
  std::erase_if(in_flight_, [&](const MpiWorkPtr& work) {
    if (!work->HasEnded(mpi_)) return false;
    ended.push_back(work);
    return true;
  });
  return ended;
}

void MpiEngine::Poll() {
  std::vector<MpiWorkPtr> ended;
  {
    const std::unique_lock calls(calls_, std::try_to_lock);
    if (!calls) return;
    const std::lock_guard works(works_);
    StartSubmitted();
    ended = TakeEnded();
  }
  for (const MpiWorkPtr& work : ended) {
    --pending_;
    work->End(nullptr);
  }
}

void MpiEngine::Await(const MpiWork& work) {
  constexpr microseconds kSpin(2000), kSpinOnShared(150);
  ++waiters_;
  last_wait_ = SteadyNow();
  const Pause pause(has_processors_ ? kSpin : kSpinOnShared);
  while (!work.ended_) {
    Poll();
    if (!work.ended_) pause.Wait();
  }
  if (--waiters_ == 0 && (pending_ > 0 || !IsExpectingWaits())) {
    const std::lock_guard lock(sleep_);
    wake_.notify_one();
  }
}

bool MpiEngine::IsExpectingWaits() const {
  constexpr milliseconds kHabit(5);
  return SteadyNow() < last_wait_.load() + kHabit;
}

void MpiEngine::Rest() {
  constexpr microseconds kNap(200);
  std::unique_lock lock(sleep_);
  const bool is_expecting = IsExpectingWaits();
  if (is_expecting || waiters_ > 0) {
    wake_.wait_for(lock, is_expecting ? kNap : microseconds(kLook), [this] {
      return stopping_ || (pending_ > 0 && waiters_ == 0);
    });
    return;
  }
  asleep_ = true;
  wake_.wait(lock, [this] { return stopping_ || pending_ > 0; });
  asleep_ = false;
}

void MpiEngine::Run() {
  constexpr microseconds kSpin(20);
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; otherwise pauses are 50 us longer
  IdleThread submitter;
  while (!stopping_) {
    Rest();
    const Pause pause(kSpin);
    while (pending_ > 0 && waiters_ == 0 && !stopping_) {
      Poll();
      LookAround();
      // A thread that waits for a future needs no processor meanwhile.
      const bool may_spin = has_processors_ && submitter.IsIdle(submitter_);
      if (pending_ > 0 && !may_spin) pause.Wait();
    }
    LookAround();
  }
}

void MpiEngine::Fail(MpiGroup& group, const std::string& why) {
  std::vector<MpiWorkPtr> failed;
  {
    const std::lock_guard works(works_);
    const std::lock_guard queue(queue_);
    if (group.why_broken.empty()) group.why_broken = why;
    for (std::vector<MpiWorkPtr>* list : {&in_flight_, &submitted_}) {
      std::erase_if(*list, [&](const MpiWorkPtr& work) {
        if (work->group_.get() != &group) return false;
        failed.push_back(work);
        abandoned_.push_back(work);
        return true;
      });
    }
  }
  for (const MpiWorkPtr& work : failed) {
    --pending_;
    work->End(Error(work->call_.title, why));
  }
}

void MpiEngine::LookAround() {
  if (pending_ == 0 || SteadyNow() < next_look_) return;
  next_look_ = SteadyNow() + kLook;
  // Start of each group's oldest work in flight.
  std::map<std::shared_ptr<MpiGroup>, SteadyTime> groups;
  std::vector<MpiWorkPtr> overdue;
  {
    const std::lock_guard works(works_);
    const std::lock_guard queue(queue_);
    for (const auto* list : {&in_flight_, &submitted_}) {
      for (const MpiWorkPtr& work : *list) {
        const auto [entry, is_new] =
            groups.try_emplace(work->group_, work->start_);
        if (!is_new) entry->second = std::min(entry->second, work->start_);
        if (work->IsOverdue()) overdue.push_back(work);
      }
    }
  }
  for (const MpiWorkPtr& work : overdue) {
    Fail(*work->group_,
         absl::StrCat("timed out after ",
                      absl::FormatDuration(ElapsedSince(work->start_))));
  }
  for (const auto& [group, oldest] : groups) LookAt(*group, oldest);
}

void MpiEngine::LookAt(MpiGroup& group, SteadyTime oldest) {
  const SteadyTime now = SteadyNow();
  if (group.notice.empty()) group.notice = DeadRank(group);
  if (group.notice.empty() &&
      now > std::max(oldest + kQuestion, group.next_question)) {
    group.next_question = now + kQuestion;
    group.notice = WhyEnded(*group.store);
  }
  if (group.notice.empty()) return;
  if (group.noticed == SteadyTime()) group.noticed = now;
  if (now - group.noticed > kForLastMessages) Fail(group, group.notice);
}

std::string MpiEngine::DeadRank(const MpiGroup& group) const {
  for (const auto& [rank, process] : watched_) {
    if (!absl::c_linear_search(group.ranks, rank)) continue;
    pollfd waited = {.fd = process, .events = POLLIN, .revents = 0};
    if (poll(&waited, 1, /*timeout=*/0) > 0) {
      return absl::StrCat("rank ", rank, " has ended");
    }
  }
  return "";
}

}  // namespace rankwise
