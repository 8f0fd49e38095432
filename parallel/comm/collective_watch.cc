#include "parallel/comm/collective_watch.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/comm/plain_error.h"
#include "parallel/comm/quiet_store.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

std::string MessageOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return PlainMessage(exception);
  } catch (...) {
    return "an exception of unknown type";
  }
}

// True when `work` has ended; `error` says how if not well.
bool HasEnded(c10d::Work& work, std::string& error) {
  try {
    if (!work.isCompleted()) return false;
    if (work.exception() != nullptr) error = MessageOf(work.exception());
  } catch (const std::exception& exception) {
    error = PlainMessage(exception);
  }
  return true;
}

// NCCL's work that turns out to have failed says so in c10's log, with a stack
// trace (ProcessGroupNCCL.cpp, checkAndSetException).
bool HasEndedQuietly(c10d::Work& work, std::string& error) {
  const QuietStore quiet;
  return HasEnded(work, error);
}

// From then on a failure is likely enough to ask quietly. Not before: that
// changes the log level of all threads, and steps that go well leave it alone.
constexpr absl::Duration kSlow = absl::Seconds(1);

}  // namespace

CollectiveWatch::CollectiveWatch(CollectiveWatchConfig config,
                                 std::shared_ptr<CollectiveLog> log)
    : config_(std::move(config)), log_(std::move(log)) {
  thread_ = std::thread([this] { Run(); });
}

CollectiveWatch::~CollectiveWatch() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void CollectiveWatch::Follow(CollectiveLog::Ticket ticket,
                             c10::intrusive_ptr<c10d::Work> work, Lane lane) {
  log_->Follow(ticket);
  ++in_flight_;
  std::lock_guard<std::mutex> lock(mutex_);
  new_.push_back({ticket, std::move(work), lane, absl::Now()});
}

bool CollectiveWatch::Drain(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (in_flight_ > 0 && absl::Now() < deadline) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (duty_ != Duty::kWatching) return false;
    }
    absl::SleepFor(config_.interval / 4);
  }
  return in_flight_ == 0;
}

bool CollectiveWatch::StandDown() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (duty_ == Duty::kWatching) duty_ = Duty::kStoodDown;
  return duty_ == Duty::kStoodDown;
}

void CollectiveWatch::Run() {
  const auto interval = absl::ToChronoNanoseconds(config_.interval);
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait_for(lock, interval, [this] { return stopping_; });
      if (stopping_ || duty_ != Duty::kWatching) return;
    }
    TakeIn();
    std::string why = Ask();
    if (why.empty()) why = Overdue();
    if (why.empty()) why = LookAround(absl::Now());
    if (why.empty()) continue;
    GiveUp(why);
    return;
  }
}

void CollectiveWatch::TakeIn() {
  std::vector<Followed> arrived;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    arrived.swap(new_);
  }
  for (Followed& followed : arrived) {
    lanes_[followed.lane].push_back(std::move(followed));
  }
}

std::string CollectiveWatch::Ask() {
  std::string why;
  const auto ask = [&] {
    for (auto& [key, lane] : lanes_) {
      if (why.empty()) why = AskLane(lane);
    }
  };
  if (in_flight_ == 0) return "";
  if (config_.around_questions == nullptr) {
    ask();
    return why;
  }
  try {
    config_.around_questions(ask);
  } catch (const std::exception& error) {
    if (why.empty()) why = PlainMessage(error);
  }
  return why;
}

std::string CollectiveWatch::AskLane(std::deque<Followed>& lane) {
  while (!lane.empty()) {
    const Followed& oldest = lane.front();
    std::string error;
    const bool ended = absl::Now() - oldest.start < kSlow
                           ? HasEnded(*oldest.work, error)
                           : HasEndedQuietly(*oldest.work, error);
    if (!ended) return "";
    log_->EndFollowed(lane.front().ticket, error.empty());
    lane.pop_front();
    --in_flight_;
    if (!error.empty()) return error;
  }
  return "";
}

absl::Time CollectiveWatch::OldestStart() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const auto& [key, lane] : lanes_) {
    if (!lane.empty()) oldest = std::min(oldest, lane.front().start);
  }
  return oldest;
}

std::string CollectiveWatch::Overdue() {
  const absl::Time oldest = OldestStart();
  if (absl::Now() - oldest < config_.timeout) return "";
  for (auto& [key, lane] : lanes_) {
    if (lane.empty() || lane.front().start != oldest) continue;
    log_->EndFollowed(lane.front().ticket, /*ok=*/false);
    break;
  }
  return absl::StrCat("Timed out after ",
                      absl::FormatDuration(config_.timeout));
}

std::string CollectiveWatch::LookAround(absl::Time now) {
  if (config_.look_around == nullptr || now < next_look_) return "";
  next_look_ = now + config_.look_interval;
  const absl::Time oldest = OldestStart();
  return config_.look_around(std::max(absl::ZeroDuration(), now - oldest));
}

void CollectiveWatch::GiveUp(const std::string& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (duty_ != Duty::kWatching) return;
    duty_ = Duty::kGivenUp;
  }
  if (config_.give_up != nullptr) config_.give_up(why);
}

}  // namespace rankwise
