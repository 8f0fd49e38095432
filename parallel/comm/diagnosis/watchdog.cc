#include "parallel/comm/diagnosis/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "torch/csrc/distributed/c10d/Store.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

constexpr absl::Duration kFirstQuestion = absl::Seconds(10);
// A younger collective may still complete although another rank has failed.
constexpr absl::Duration kLong = absl::Seconds(1);

Trouble TroubleOf(const std::exception& error) {
  return {PlainMessage(error),
          dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr};
}

// Returns true if `work` has ended; sets `trouble` if it failed.
bool HasEnded(c10d::Work& work, Trouble& trouble) {
  try {
    if (!work.isCompleted()) return false;
    if (work.exception() != nullptr) std::rethrow_exception(work.exception());
  } catch (const std::exception& exception) {
    trouble = TroubleOf(exception);
  } catch (...) {
    trouble = {"an exception of unknown type"};
  }
  return true;
}

}  // namespace

Watchdog::Watchdog(WatchdogConfig config, std::shared_ptr<CollectiveLog> log)
    : config_(std::move(config)),
      log_(std::move(log)),
      next_question_(kFirstQuestion) {
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::Follow(CollectiveLog::Ticket ticket,
                      c10::intrusive_ptr<c10d::Work> work, Lane lane) {
  log_->Follow(ticket);
  ++in_flight_;
  std::lock_guard<std::mutex> lock(mutex_);
  new_[lane].push_back({ticket, std::move(work), SteadyNow()});
}

bool Watchdog::Drain(absl::Duration patience) {
  const Deadline deadline(patience);
  while (in_flight_ > 0 && !deadline.passed()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (duty_ != Duty::kWatching) return false;
    }
    absl::SleepFor(config_.poll_interval / 4);
  }
  return in_flight_ == 0;
}

bool Watchdog::StandDown() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (duty_ == Duty::kWatching) duty_ = Duty::kStoodDown;
  return duty_ == Duty::kStoodDown;
}

void Watchdog::Run() {
  const auto interval = absl::ToChronoNanoseconds(config_.poll_interval);
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait_for(lock, interval, [this] { return stopping_; });
      if (stopping_ || duty_ != Duty::kWatching) return;
      for (auto& [key, arrived] : new_) {
        std::move(arrived.begin(), arrived.end(),
                  std::back_inserter(lanes_[key]));
        arrived.clear();
      }
    }
    const Trouble why = Round();
    if (!why) continue;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (duty_ != Duty::kWatching) return;
      duty_ = Duty::kGivenUp;
    }
    return GiveUp(why);
  }
}

Trouble Watchdog::Round() {
  if (Trouble why = Poll()) return why;
  std::deque<Followed>* const oldest = OldestLane();
  const absl::Duration age = oldest == nullptr
                                 ? absl::ZeroDuration()
                                 : ElapsedSince(oldest->front().start);
  if (age >= config_.timeout) {
    log_->EndFollowed(oldest->front().ticket, /*ok=*/false);
    return {absl::StrCat("Timed out after ",
                         absl::FormatDuration(config_.timeout))};
  }
  if (config_.store == nullptr || !next_look_.passed()) return {};
  next_look_ = Deadline(config_.look_interval);
  return LookAround(age);
}

Trouble Watchdog::Poll() {
  if (in_flight_ == 0) return {};
  Trouble why;
  try {
    config_.around_polling([&] {
      for (auto& [key, lane] : lanes_) {
        if (!why) why = PollLane(lane);
      }
    });
  } catch (const std::exception& error) {
    if (!why) why = TroubleOf(error);
  }
  return why;
}

Trouble Watchdog::PollLane(std::deque<Followed>& lane) {
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

std::deque<Watchdog::Followed>* Watchdog::OldestLane() {
  std::deque<Followed>* oldest = nullptr;
  for (auto& [key, lane] : lanes_) {
    if (lane.empty()) continue;
    if (oldest == nullptr || lane.front().start < oldest->front().start) {
      oldest = &lane;
    }
  }
  return oldest;
}

Trouble Watchdog::LookAround(absl::Duration oldest) {
  const bool is_long = oldest > kLong;
  if (store_lost_) return {is_long ? "the ranks' store is lost" : ""};
  try {
    if (is_long && AnyFailed(*config_.store)) {
      return {"another rank has failed"};
    }
    if (oldest == absl::ZeroDuration()) {
      next_question_ = kFirstQuestion;
      return {};
    }
    if (AnyDead(*config_.store)) return {"a rank has died"};
  } catch (const std::exception&) {
    store_lost_ = true;
    return {};
  }
  if (oldest < next_question_) return {};
  next_question_ *= 2;
  return LookForGoneRanks();
}

Trouble Watchdog::LookForGoneRanks() {
  const std::vector<int> group = log_->Suspect().ranks;
  const absl::StatusOr<std::vector<PeerStatus>> peers = QueryPeers(
      *config_.store, config_.rank, config_.world_size, config_.silence);
  store_lost_ = !peers.ok();
  if (store_lost_) return {};
  for (const PeerStatus& peer : *peers) {
    // A rank may leave once its own groups are done.
    const bool may_leave =
        peer.life == PeerStatus::Life::kLeft && !group.empty() &&
        std::find(group.begin(), group.end(), peer.rank) == group.end();
    if (IsGone(peer) && !may_leave) return {"a rank is gone"};
  }
  return {};
}

void Watchdog::GiveUp(const Trouble& why) {
  constexpr absl::Duration kPatienceForAbort = absl::Seconds(5);
  Failure failure;
  failure.attempted = why.of_the_gpu ? "work on the GPU" : "communication";
  failure.rank = config_.rank;
  failure.world_size = config_.world_size;
  failure.error = why.text;
  failure.collective_timeout = config_.timeout;
  failure.collective = log_->Suspect();
  Heartbeat* const heartbeat =
      config_.heartbeat == nullptr ? nullptr : config_.heartbeat();
  if (heartbeat != nullptr) {
    failure.order = heartbeat->MarkFailed(
        why.of_the_gpu ? failure.attempted : failure.collective.description);
  }
  if (why.of_the_gpu) {
    // The polled collective only revealed the error.
    absl::StrAppend(&failure.error,
                    "; run again with CUDA_LAUNCH_BLOCKING=1 in the "
                    "environment to see which call fails");
  }
  const absl::Status explained =
      why.of_the_gpu ? DescribeOtherFailure(failure)
      : heartbeat != nullptr
          ? ExplainByPeers(failure, *config_.store)
          : DescribeFailure(failure, std::vector<PeerStatus>());
  Print(std::string(explained.message()));
  WriteRecorder();
  if (config_.abort != nullptr) RunWithin(kPatienceForAbort, config_.abort);
  fflush(stdout);
  if (config_.end != nullptr) return config_.end(1);
  _exit(1);
}

void Watchdog::WriteRecorder() const {
  if (config_.dump_recorder == nullptr) return;
  const auto dump = std::make_shared<std::string>();
  const bool dumped = RunWithin(
      absl::Seconds(1),
      [dump, recorder = config_.dump_recorder] { *dump = recorder(); });
  if (!dumped || dump->empty()) return;
  std::error_code no_folder;
  const std::string path = absl::StrCat(
      std::filesystem::temp_directory_path(no_folder).string(),
      "/rankwise_calls_rank_", config_.rank, "_pid_", getpid(), ".json");
  if (!(std::ofstream(path) << *dump)) return;
  Print(absl::StrCat("rank ", config_.rank,
                     ": c10d's flight recorder (the last calls, by its own "
                     "count, with their states) is in ",
                     path));
}

void Watchdog::Print(const std::string& line) const {
  if (config_.print != nullptr) return config_.print(line);
  fprintf(stderr, "%s\n", line.c_str());
  fflush(stderr);
}

}  // namespace rankwise
