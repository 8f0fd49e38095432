#include "parallel/comm/peers.h"

#include <chrono>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "parallel/comm/plain_error.h"
#include "parallel/comm/quiet_store.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

constexpr std::chrono::seconds kBeatInterval(1);
constexpr char kDeparturesKey[] = "departures";

std::string PulseKey(int rank) { return absl::StrCat("pulse/", rank); }
std::string DeathKey(int rank) { return absl::StrCat("death/", rank); }

PeerStatus::Life LifeOf(Pulse::Life life) {
  switch (life) {
    case Pulse::Life::kFailed:
      return PeerStatus::Life::kFailed;
    case Pulse::Life::kLeft:
      return PeerStatus::Life::kLeft;
    case Pulse::Life::kAlive:
      break;
  }
  return PeerStatus::Life::kAlive;
}

// Watches one peer while the question is open.
class Observation {
 public:
  explicit Observation(int rank) { status_.rank = rank; }

  // Reads what the store has to say now.
  void Look(c10d::Store& store) {
    ReadPulse(store);
    // A rank that ends because of a failed collective is not its cause.
    if (status_.life != PeerStatus::Life::kFailed &&
        store.check({DeathKey(status_.rank)})) {
      status_.life = PeerStatus::Life::kDead;
      status_.death = store.get_to_str(DeathKey(status_.rank));
    }
  }

  bool settled() const { return status_.life != PeerStatus::Life::kSilent; }
  const PeerStatus& status() const { return status_; }

 private:
  void ReadPulse(c10d::Store& store) {
    if (!store.check({PulseKey(status_.rank)})) return;
    const absl::StatusOr<Pulse> pulse =
        ParsePulse(store.get_to_str(PulseKey(status_.rank)));
    if (!pulse.ok()) return;
    if (!seen_) first_beat_ = pulse->beat;
    seen_ = true;
    status_.sequence = pulse->sequence;
    status_.doing = pulse->doing;
    const bool fresh = pulse->beat != first_beat_;
    if (fresh || pulse->life != Pulse::Life::kAlive) {
      status_.life = LifeOf(pulse->life);
    }
  }

  PeerStatus status_;  // silent until shown otherwise
  bool seen_ = false;
  uint64_t first_beat_ = 0;
};

}  // namespace

std::string FormatPulse(const Pulse& pulse) {
  return absl::StrCat(static_cast<int>(pulse.life), "|", pulse.beat, "|",
                      pulse.sequence, "|", pulse.doing);
}

absl::StatusOr<Pulse> ParsePulse(const std::string& text) {
  const std::vector<std::string> fields =
      absl::StrSplit(text, absl::MaxSplits('|', 3));
  Pulse pulse;
  int life = 0;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &life) || life < 0 ||
      life > static_cast<int>(Pulse::Life::kLeft) ||
      !absl::SimpleAtoi(fields[1], &pulse.beat) ||
      !absl::SimpleAtoi(fields[2], &pulse.sequence)) {
    return absl::DataLossError(absl::StrCat("not a pulse: '", text, "'"));
  }
  pulse.life = static_cast<Pulse::Life>(life);
  pulse.doing = fields[3];
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
  const CollectiveReport last = log_->LastStarted();
  ++pulse_.beat;
  pulse_.sequence = last.sequence;
  pulse_.doing = last.description;
  const QuietStore quiet;
  try {
    store_->set(PulseKey(rank_), FormatPulse(pulse_));
  } catch (const std::exception&) {
    store_lost_ = true;
  }
}

void Heartbeat::MarkFailed() {
  std::lock_guard<std::mutex> lock(mutex_);
  pulse_.life = Pulse::Life::kFailed;
  Publish();
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
}

absl::StatusOr<std::vector<PeerStatus>> AskPeers(c10d::Store& store, int self,
                                                 int world_size,
                                                 absl::Duration patience) {
  std::vector<Observation> peers;
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != self) peers.emplace_back(rank);
  }
  const absl::Time deadline = absl::Now() + patience;
  bool any_dead = false;
  const QuietStore quiet;
  try {
    while (true) {
      bool all_settled = true;
      for (Observation& peer : peers) {
        peer.Look(store);
        any_dead |= peer.status().life == PeerStatus::Life::kDead;
        all_settled &= peer.settled();
      }
      if (any_dead || all_settled || absl::Now() >= deadline) break;
      absl::SleepFor(absl::Milliseconds(50));
    }
  } catch (const std::exception& error) {
    return absl::UnavailableError(PlainMessage(error));
  }
  std::vector<PeerStatus> statuses;
  for (const Observation& peer : peers) {
    statuses.push_back(peer.status());
    if (any_dead && !peer.settled()) {
      statuses.back().life = PeerStatus::Life::kUnknown;
    }
  }
  return statuses;
}

void AwaitDepartures(c10d::Store& store, int world_size,
                     absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  const QuietStore quiet;
  try {
    int64_t gone = store.add(kDeparturesKey, 1);
    while (gone < world_size && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
      gone = store.add(kDeparturesKey, 0);
    }
  } catch (const std::exception&) {
    // The store went first: nobody is left to wait for.
  }
}

}  // namespace rankwise
