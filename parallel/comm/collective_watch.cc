#include "parallel/comm/collective_watch.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "parallel/comm/plain_error.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

Trouble TroubleOf(const std::exception& error) {
  return {PlainMessage(error),
          dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr};
}

Trouble TroubleOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return TroubleOf(exception);
  } catch (...) {
    return {"an exception of unknown type"};
  }
}

// True when `work` has ended; `trouble` says how if not well.
bool HasEnded(c10d::Work& work, Trouble& trouble) {
  try {
    if (!work.isCompleted()) return false;
    if (work.exception() != nullptr) trouble = TroubleOf(work.exception());
  } catch (const std::exception& exception) {
    trouble = TroubleOf(exception);
  }
  return true;
}

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
  new_.push_back({ticket, std::move(work), lane, SteadyNow()});
}

bool CollectiveWatch::Drain(absl::Duration patience) {
  const Deadline deadline(patience);
  while (in_flight_ > 0 && !deadline.passed()) {
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
    Trouble why = Ask();
    if (!why) why = Overdue();
    if (!why) why = LookAround();
    if (!why) continue;
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

Trouble CollectiveWatch::Ask() {
  Trouble why;
  const auto ask = [&] {
    for (auto& [key, lane] : lanes_) {
      if (!why) why = AskLane(lane);
    }
  };
  if (in_flight_ == 0) return {};
  if (config_.around_questions == nullptr) {
    ask();
    return why;
  }
  try {
    config_.around_questions(ask);
  } catch (const std::exception& error) {
    if (!why) why = TroubleOf(error);
  }
  return why;
}

Trouble CollectiveWatch::AskLane(std::deque<Followed>& lane) {
  while (!lane.empty()) {
    Trouble trouble;
    if (!HasEnded(*lane.front().work, trouble)) return {};
    log_->EndFollowed(lane.front().ticket, /*ok=*/!trouble);
    lane.pop_front();
    --in_flight_;
    if (trouble) return trouble;
  }
  return {};
}

const SteadyTime* CollectiveWatch::OldestStart() const {
  const SteadyTime* oldest = nullptr;
  for (const auto& [key, lane] : lanes_) {
    if (lane.empty()) continue;
    const SteadyTime& start = lane.front().start;
    if (oldest == nullptr || start < *oldest) oldest = &start;
  }
  return oldest;
}

Trouble CollectiveWatch::Overdue() {
  const SteadyTime* const oldest = OldestStart();
  if (oldest == nullptr || ElapsedSince(*oldest) < config_.timeout) return {};
  for (auto& [key, lane] : lanes_) {
    if (lane.empty() || lane.front().start != *oldest) continue;
    log_->EndFollowed(lane.front().ticket, /*ok=*/false);
    break;
  }
  return {
      absl::StrCat("Timed out after ", absl::FormatDuration(config_.timeout))};
}

Trouble CollectiveWatch::LookAround() {
  if (config_.look_around == nullptr || !next_look_.passed()) return {};
  next_look_ = Deadline(config_.look_interval);
  const SteadyTime* const oldest = OldestStart();
  return {config_.look_around(oldest == nullptr ? absl::ZeroDuration()
                                                : ElapsedSince(*oldest))};
}

void CollectiveWatch::GiveUp(const Trouble& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (duty_ != Duty::kWatching) return;
    duty_ = Duty::kGivenUp;
  }
  if (config_.give_up != nullptr) config_.give_up(why);
}

}  // namespace rankwise
