#include "parallel/comm/diagnosis/peers.h"

#include <chrono>
#include <exception>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
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
constexpr char kDeathsAllowedKey[] = "deaths_allowed";
constexpr char kRestartForbiddenKey[] = "restart_forbidden";

std::string PulseKey(int rank) { return absl::StrCat("pulse/", rank); }
std::string DeathKey(int rank) { return absl::StrCat("death/", rank); }
std::string StopKey(int rank) { return absl::StrCat("stop/", rank); }
std::string BlameKey(int rank) { return absl::StrCat("blame/", rank); }

template <typename T>
std::string ToText(const T& value) {
  using Json = nlohmann::json;
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T>
std::optional<T> FromText(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<T>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// State of one peer during a query: silent until shown otherwise.
struct Observation {
  PeerStatus status;
  std::optional<uint64_t> first_beat = std::nullopt;  // seen in this query

  // Reads the peer's state from the store.
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
    const std::optional<Pulse> pulse =
        ParsePulse(store.get_to_str(PulseKey(status.rank)));
    if (!pulse.has_value()) return;
    if (!first_beat.has_value()) first_beat = pulse->beat;
    status.pulse = *pulse;
    if (pulse->beat != first_beat || pulse->life != Life::kAlive)
      status.life = pulse->life;
  }
};

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupProgress, sequence, doing)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Pulse, life, beat, failure_order, failure,
                                   host, doing, progress)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Blame, rank, what)

std::string FormatPulse(const Pulse& pulse) { return ToText(pulse); }

std::optional<Pulse> ParsePulse(const std::string& text) {
  std::optional<Pulse> pulse = FromText<Pulse>(text);
  const bool may_be_published =
      pulse.has_value() &&
      (pulse->life == Life::kAlive || pulse->life == Life::kFailed ||
       pulse->life == Life::kLeft);
  return may_be_published ? pulse : std::nullopt;
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank,
                     std::shared_ptr<const CollectiveLog> log,
                     const std::string& host)
    : store_(std::move(store)), rank_(rank), log_(std::move(log)) {
  pulse_.host = host;
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
  pulse_.progress = log_->Progress();
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

void AllowDeaths(c10d::Store& store) { store.set(kDeathsAllowedKey, ""); }

bool DeathsAllowed(c10d::Store& store) {
  return store.check({kDeathsAllowedKey});
}

void ForbidRestart(c10d::Store& store) { store.set(kRestartForbiddenKey, ""); }

bool RestartForbidden(c10d::Store& store) {
  return store.check({kRestartForbiddenKey});
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
    store.set(BlameKey(rank), ToText(blames.front()));
  } catch (const std::exception&) {
    // The store is gone.
  }
}

std::optional<Blame> RootBlameOf(c10d::Store& store, int rank) {
  std::optional<Blame> root;
  std::set<int> seen = {rank};
  while (store.check({BlameKey(rank)})) {
    std::optional<Blame> next =
        FromText<Blame>(store.get_to_str(BlameKey(rank)));
    if (!next.has_value() || !seen.insert(next->rank).second) break;
    root = std::move(next);
    rank = root->rank;
  }
  return root;
}

bool IsGone(const PeerStatus& peer) {
  return peer.life == Life::kDead || peer.life == Life::kStopped ||
         peer.life == Life::kSilent || peer.life == Life::kLeft;
}

bool AnyFailed(c10d::Store& store) { return store.check({kFailuresKey}); }
bool AnyDead(c10d::Store& store) { return store.check({kDeathsKey}); }

absl::StatusOr<std::vector<PeerStatus>> QueryPeers(c10d::Store& store, int self,
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
    // The store is gone, so no rank is left to wait for.
  }
}

}  // namespace rankwise
