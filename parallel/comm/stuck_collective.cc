#include "parallel/comm/stuck_collective.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/comm/failure_report.h"
#include "parallel/comm/flight_recorder_summary.h"
#include "parallel/comm/run_within.h"
#include "parallel/comm/steady_time.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

constexpr absl::Duration kFirstQuestion = absl::Seconds(10);
constexpr absl::Duration kPatienceForPeers = absl::Milliseconds(2500);
constexpr absl::Duration kPatienceForRecorders = absl::Milliseconds(1500);
constexpr absl::Duration kPatienceForDump = absl::Seconds(1);
constexpr absl::Duration kPatienceForAbort = absl::Seconds(5);
// A collective in flight for less may just be late behind a failure.
constexpr absl::Duration kLong = absl::Seconds(1);
constexpr size_t kCallsPerGroup = 20;

std::string RecorderKey(int rank) { return absl::StrCat("recorder/", rank); }

bool IsGone(const PeerStatus& peer, const std::vector<int>& group) {
  if (peer.life == PeerStatus::Life::kLeft) {
    return group.empty() ||
           std::find(group.begin(), group.end(), peer.rank) != group.end();
  }
  return peer.life == PeerStatus::Life::kDead ||
         peer.life == PeerStatus::Life::kStopped ||
         peer.life == PeerStatus::Life::kSilent;
}

// The collective that was asked about is only where it was noticed.
absl::Status DescribeGpuFailure(Failure failure) {
  failure.attempted = "work on the GPU";
  absl::StrAppend(&failure.error,
                  "; with CUDA_LAUNCH_BLOCKING=1 in the environment the call "
                  "that is at fault fails");
  return DescribeOtherFailure(failure);
}

}  // namespace

std::string StuckCollective::LookAround(absl::Duration oldest) {
  if (config_.world_size == 1) return "";
  const bool is_long = oldest > kLong;
  if (store_lost_) return is_long ? "the ranks' store is lost" : "";
  try {
    if (AnyFailed(*config_.store)) {
      HandOver();
      if (is_long) return "another rank has failed";
    }
    if (oldest == absl::ZeroDuration()) {
      next_question_ = kFirstQuestion;
      return "";
    }
    if (AnyDead(*config_.store)) return "a rank has died";
  } catch (const std::exception&) {
    store_lost_ = true;
    return "";
  }
  if (oldest < next_question_) return "";
  next_question_ *= 2;
  return LookForGone();
}

Heartbeat* StuckCollective::Pulse() const {
  return config_.heartbeat == nullptr ? nullptr : config_.heartbeat();
}

std::string StuckCollective::LookForGone() {
  const std::vector<int> group = config_.log->Suspect().ranks;
  const absl::StatusOr<std::vector<PeerStatus>> peers = AskPeers(
      *config_.store, config_.rank, config_.world_size, config_.silence);
  store_lost_ = !peers.ok();
  if (store_lost_) return "";
  for (const PeerStatus& peer : *peers) {
    if (IsGone(peer, group)) return "a rank is gone";
  }
  return "";
}

void StuckCollective::HandOver() {
  if (handed_over_ || config_.dump_recorder == nullptr) return;
  handed_over_ = true;
  auto dump = std::make_shared<std::string>();
  if (!RunWithin(kPatienceForDump,
                 [dump, ask = config_.dump_recorder] { *dump = ask(); })) {
    return;
  }
  const std::string text = TrimFlightRecorder(*dump, kCallsPerGroup);
  if (!text.empty()) config_.store->set(RecorderKey(config_.rank), text);
}

std::map<int, std::string> StuckCollective::GatherRecorders() {
  std::map<int, std::string> dumps;
  const Deadline deadline(kPatienceForRecorders);
  while (true) {
    for (int rank = 0; rank < config_.world_size; ++rank) {
      if (dumps.count(rank) > 0) continue;
      if (!config_.store->check({RecorderKey(rank)})) continue;
      dumps[rank] = config_.store->get_to_str(RecorderKey(rank));
    }
    const bool all = static_cast<int>(dumps.size()) == config_.world_size;
    if (all || deadline.passed()) return dumps;
    absl::SleepFor(absl::Milliseconds(50));
  }
}

// The first rank to fail tells for all.
void StuckCollective::ShareRecorders(int64_t order) {
  try {
    HandOver();
    if (order > 1) return;
    const std::map<int, std::string> dumps = GatherRecorders();
    if (dumps.empty()) return;
    // Not the numbers of the report above: c10d counts calls that are not
    // logged, and each of its backends for itself.
    Print("flight recorders, by c10d's own count:");
    for (const std::string& sentence :
         SummarizeFlightRecorders(dumps, config_.world_size)) {
      Print("  " + sentence);
    }
  } catch (const std::exception&) {
    // The store has gone meanwhile; the report is out.
  }
}

void StuckCollective::Print(const std::string& line) const {
  if (config_.print != nullptr) return config_.print(line);
  fprintf(stderr, "%s\n", line.c_str());
  fflush(stderr);
}

void StuckCollective::GiveUp(const Trouble& why) {
  Failure failure;
  failure.attempted = "communication";
  failure.rank = config_.rank;
  failure.world_size = config_.world_size;
  failure.error = why.text;
  failure.collective_timeout = config_.collective_timeout;
  failure.collective = config_.log->Suspect();
  absl::StatusOr<std::vector<PeerStatus>> peers = std::vector<PeerStatus>();
  Heartbeat* const pulse = Pulse();
  if (pulse != nullptr) {
    failure.order = pulse->MarkFailed(
        why.of_the_gpu ? "work on the GPU" : failure.collective.description);
    peers = AskPeers(*config_.store, config_.rank, config_.world_size,
                     kPatienceForPeers);
  }
  const absl::Status told = why.of_the_gpu ? DescribeGpuFailure(failure)
                                           : DescribeFailure(failure, peers);
  if (pulse != nullptr && !why.of_the_gpu && peers.ok()) {
    ReportBlame(*config_.store, config_.rank, FindBlame(failure, *peers));
  }
  Print(std::string(told.message()));
  if (pulse != nullptr && peers.ok()) ShareRecorders(failure.order);
  if (config_.abort != nullptr) RunWithin(kPatienceForAbort, config_.abort);
  fflush(stdout);
  if (config_.end != nullptr) return config_.end(1);
  _exit(1);
}

}  // namespace rankwise
