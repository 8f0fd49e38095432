#include "parallel/comm/diagnosis/peers.h"

#include <chrono>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

using Life = PeerStatus::Life;

constexpr std::chrono::seconds kBeatInterval(1);
constexpr char kDeparturesKey[] = "departures";
constexpr char kDeathsKey[] = "deaths";
constexpr char kFailuresKey[] = "failures";

std::string PulseKey(int rank) { return absl::StrCat("pulse/", rank); }
std::string DeathKey(int rank) { return absl::StrCat("death/", rank); }
std::string StopKey(int rank) { return absl::StrCat("stop/", rank); }
std::string BlameKey(int rank) { return absl::StrCat("blame/", rank); }

// What is known of one peer while the question is open: silent until shown
// otherwise.
struct Observation {
  PeerStatus status;
  std::optional<uint64_t> first_beat = std::nullopt;  // that was seen

  // Reads what the store has to say now.
  void Look(c10d::Store& store) {
    ReadPulse(store);
    // A rank that ends because of a failed collective is not its cause.
    if (status.life != Life::kFailed && store.check({DeathKey(status.rank)})) {
      status.life = Life::kDead;
      status.death = store.get_to_str(DeathKey(status.rank));
    }
    if ((status.life == Life::kSilent || status.life == Life::kAlive) &&
        store.check({StopKey(status.rank)})) {
      status.life = Life::kStopped;
    }
  }

  void ReadPulse(c10d::Store& store) {
    if (!store.check({PulseKey(status.rank)})) return;
    const absl::StatusOr<Pulse> pulse =
        ParsePulse(store.get_to_str(PulseKey(status.rank)));
    if (!pulse.ok()) return;
    if (!first_beat.has_value()) first_beat = pulse->beat;
    status.pulse = *pulse;
    if (pulse->beat != first_beat || pulse->life != Life::kAlive)
      status.life = pulse->life;
  }
};

}  // namespace

// Lines: the numbers, the failure, what it is doing, then one per group.
std::string FormatPulse(const Pulse& pulse) {
  std::string text =
      absl::StrCat(static_cast<int>(pulse.life), "|", pulse.beat, "|",
                   pulse.failure_order, "\n", pulse.failure, "\n", pulse.doing);
  for (const GroupProgress& group : pulse.progress) {
    absl::StrAppend(&text, "\n", group.sequence, "|", group.doing);
  }
  return text;
}

absl::StatusOr<Pulse> ParsePulse(const std::string& text) {
  const absl::Status refusal =
      absl::DataLossError(absl::StrCat("not a pulse: '", text, "'"));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> numbers = absl::StrSplit(lines[0], '|');
  Pulse pulse;
  int life = 0;
  if (lines.size() < 3 || numbers.size() != 3 ||
      !absl::SimpleAtoi(numbers[0], &life) || life < 0 ||
      life > static_cast<int>(Pulse::Life::kLeft) ||
      !absl::SimpleAtoi(numbers[1], &pulse.beat) ||
      !absl::SimpleAtoi(numbers[2], &pulse.failure_order)) {
    return refusal;
  }
  pulse.life = static_cast<Pulse::Life>(life);
  pulse.failure = lines[1];
  pulse.doing = lines[2];
  for (size_t i = 3; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> fields =
        absl::StrSplit(lines[i], absl::MaxSplits('|', 1));
    GroupProgress group;
    if (!absl::SimpleAtoi(fields.first, &group.sequence)) return refusal;
    group.doing = fields.second;
    pulse.progress.push_back(std::move(group));
  }
  return pulse;
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank,
                     std::shared_ptr<const CollectiveLog> log)
    : store_(std::move(store)), rank_(rank), log_(std::move(log)) {
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() { Leave(); }

void Heartbeat::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_ && !store_lost_) {
    Publish();
    wake_.wait_for(lock, kBeatInterval, [this] { return stopping_; });
  }
}

void Heartbeat::Publish() {
  if (store_lost_) return;
  ++pulse_.beat;
  pulse_.doing = log_->LastStarted().description;
  pulse_.progress.clear();
  for (const CollectiveReport& last : log_->Progress()) {
    pulse_.progress.push_back({last.sequence, last.description});
  }
  try {
    store_->set(PulseKey(rank_), FormatPulse(pulse_));
  } catch (const std::exception&) {
    store_lost_ = true;
  }
}

int64_t Heartbeat::MarkFailed(const std::string& failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pulse_.life == Pulse::Life::kFailed) return pulse_.failure_order;
  pulse_.life = Pulse::Life::kFailed;
  pulse_.failure = failure;
  try {
    pulse_.failure_order = store_->add(kFailuresKey, 1);
  } catch (const std::exception&) {
    store_lost_ = true;
  }
  Publish();
  return pulse_.failure_order;
}

void Heartbeat::Leave() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  std::lock_guard<std::mutex> lock(mutex_);
  if (pulse_.life == Pulse::Life::kAlive) pulse_.life = Pulse::Life::kLeft;
  Publish();
}

void ReportDeath(c10d::Store& store, int rank, const std::string& how) {
  store.set(DeathKey(rank), how);
  store.add(kDeathsKey, 1);
}

void ReportStop(c10d::Store& store, int rank, bool is_stopped) {
  if (is_stopped) {
    store.set(StopKey(rank), "");
  } else {
    store.deleteKey(StopKey(rank));
  }
}

void ReportBlame(c10d::Store& store, int rank,
                 const std::vector<Blame>& blames) {
  if (blames.empty()) return;
  try {
    store.set(BlameKey(rank),
              absl::StrCat(blames.front().rank, "|", blames.front().what));
  } catch (const std::exception&) {
    // The store has gone meanwhile.
  }
}

std::optional<Blame> BlameOf(c10d::Store& store, int rank) {
  if (!store.check({BlameKey(rank)})) return std::nullopt;
  const std::pair<std::string, std::string> fields =
      absl::StrSplit(store.get_to_str(BlameKey(rank)), absl::MaxSplits('|', 1));
  Blame blame;
  if (!absl::SimpleAtoi(fields.first, &blame.rank)) return std::nullopt;
  blame.what = fields.second;
  return blame;
}

bool IsGone(const PeerStatus& peer) {
  return peer.life == Life::kDead || peer.life == Life::kStopped ||
         peer.life == Life::kSilent || peer.life == Life::kLeft;
}

bool AnyFailed(c10d::Store& store) { return store.check({kFailuresKey}); }
bool AnyDead(c10d::Store& store) { return store.check({kDeathsKey}); }

absl::StatusOr<std::vector<PeerStatus>> AskPeers(c10d::Store& store, int self,
                                                 int world_size,
                                                 absl::Duration patience) {
  std::vector<Observation> peers;
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != self) peers.push_back({{.rank = rank}});
  }
  const Deadline deadline(patience);
  bool is_answered = false;
  try {
    while (true) {
      bool all_settled = true;
      for (Observation& peer : peers) {
        peer.Look(store);
        const Life life = peer.status.life;
        is_answered |= life == Life::kDead || life == Life::kStopped;
        all_settled &= life != Life::kSilent;
      }
      if (is_answered || all_settled || deadline.passed()) break;
      absl::SleepFor(absl::Milliseconds(50));
    }
  } catch (const std::exception& error) {
    return absl::UnavailableError(PlainMessage(error));
  }
  std::vector<PeerStatus> statuses;
  for (const Observation& peer : peers) {
    statuses.push_back(peer.status);
    if (is_answered && peer.status.life == Life::kSilent)
      statuses.back().life = Life::kUnknown;
  }
  return statuses;
}

void AwaitDepartures(c10d::Store& store, int world_size,
                     absl::Duration patience) {
  const Deadline deadline(patience);
  try {
    int64_t gone = store.add(kDeparturesKey, 1);
    while (gone < world_size && !deadline.passed()) {
      absl::SleepFor(absl::Milliseconds(5));
      gone = store.add(kDeparturesKey, 0);
    }
  } catch (const std::exception&) {
    // The store went first: nobody is left to wait for.
  }
}

}  // namespace rankwise
