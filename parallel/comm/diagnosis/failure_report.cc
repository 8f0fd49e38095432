#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/diagnosis/peers.h"

namespace rankwise {
namespace {

using Life = PeerStatus::Life;

// "rank 3 (pp 1, tp 1, gpu07)", with its place and host if known.
std::string Named(const Failure& failure, int rank,
                  const std::string& host = "") {
  const std::vector<std::string>& places = failure.collective.places;
  const size_t index = static_cast<size_t>(rank);
  std::vector<std::string> known;
  if (index < places.size() && !places[index].empty())
    known.push_back(places[index]);
  if (!host.empty()) known.push_back(host);
  return absl::StrCat(
      "rank ", rank,
      known.empty() ? "" : absl::StrCat(" (", absl::StrJoin(known, ", "), ")"));
}

std::string Named(const Failure& failure, const PeerStatus& peer) {
  return Named(failure, peer.rank, peer.pulse.host);
}

// Backends never give up before the timeout, and Gloo throws one type for
// timeouts and lost connections.
bool TimedOut(const Failure& failure) {
  constexpr absl::Duration kRounding = absl::Milliseconds(1);
  return failure.collective.state == CollectiveReport::State::kFailed &&
         absl::Seconds(failure.collective.seconds_to_failure) + kRounding >=
             failure.collective_timeout;
}

// The pulse, published every second, is current only for a rank that lives or
// has left in good order.
std::string LastStarted(const PeerStatus& peer) {
  const bool is_current =
      peer.life != Life::kSilent && peer.life != Life::kStopped;
  if (peer.pulse.doing.empty()) {
    return is_current ? "it has not started any collective"
                      : "its last call is not known";
  }
  return absl::StrCat(
      is_current ? "its last call is " : "its last known call is ",
      peer.pulse.doing);
}

// Blames the ranks for which `fault_of` returns text: "is dead: exit code 1".
template <typename FaultOf>
std::vector<Blame> BlameFor(const Failure& failure,
                            const std::vector<PeerStatus>& peers,
                            FaultOf fault_of) {
  std::vector<Blame> blames;
  for (const PeerStatus& peer : peers) {
    const std::string fault = fault_of(peer);
    if (fault.empty()) continue;
    blames.push_back(
        {peer.rank, absl::StrCat(Named(failure, peer), " ", fault)});
  }
  return blames;
}

// A dead rank explains why other ranks left or are silent.
std::vector<Blame> BlameGone(const Failure& failure,
                             const std::vector<PeerStatus>& peers) {
  const bool any_dead = std::any_of(
      peers.begin(), peers.end(),
      [](const PeerStatus& peer) { return peer.life == Life::kDead; });
  return BlameFor(failure, peers, [&](const PeerStatus& peer) -> std::string {
    if (peer.life == Life::kDead) return absl::StrCat("is dead: ", peer.death);
    if (any_dead || !IsGone(peer)) return "";
    return absl::StrCat(peer.life == Life::kLeft ? "has left the job; "
                        : peer.life == Life::kStopped
                            ? "is stopped by a signal (SIGSTOP); "
                            : "gives no sign of life (killed, "
                              "stopped, or its machine is cut off); ",
                        LastStarted(peer));
  });
}

// Blames the first rank that failed before this one.
std::vector<Blame> BlameFirstFailed(const Failure& failure,
                                    const std::vector<PeerStatus>& peers) {
  const PeerStatus* first = nullptr;
  int64_t order = failure.order;
  for (const PeerStatus& peer : peers) {
    const int64_t theirs = peer.pulse.failure_order;
    if (peer.life != Life::kFailed || theirs == 0) continue;
    if (order > 0 && theirs >= order) continue;
    first = &peer;
    order = theirs;
  }
  if (first == nullptr) return {};
  return {
      {first->rank, absl::StrCat(Named(failure, *first), " failed first, in ",
                                 first->pulse.failure)}};
}

// Returns the progress of `peer` in the group of the failed call; nullptr for a
// rank outside the group.
const GroupProgress* ProgressInGroup(const Failure& failure,
                                     const PeerStatus& peer) {
  static const GroupProgress& none = *new GroupProgress;
  const std::vector<int>& ranks = failure.collective.ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), peer.rank);
  if (!ranks.empty() && found == ranks.end()) return nullptr;
  const size_t group = static_cast<size_t>(failure.collective.group);
  const std::vector<GroupProgress>& progress = peer.pulse.progress;
  return group < progress.size() ? &progress[group] : &none;
}

// Blames live ranks that have not started the failed call.
std::vector<Blame> BlameLate(const Failure& failure,
                             const std::vector<PeerStatus>& peers) {
  const CollectiveReport& failed = failure.collective;
  return BlameFor(failure, peers, [&](const PeerStatus& peer) -> std::string {
    const GroupProgress* progress = ProgressInGroup(failure, peer);
    if (peer.life != Life::kAlive || progress == nullptr) return "";
    const bool is_message = failed.peer >= 0;
    const bool is_late = is_message ? peer.rank == failed.peer
                                    : progress->sequence < failed.sequence;
    if (!is_late) return "";
    return absl::StrCat(is_message ? "did not answer" : "did not arrive",
                        ": it is alive, and ", LastStarted(peer));
  });
}

// Blames ranks whose collective of the same number differs.
std::vector<Blame> BlameDifferent(const Failure& failure,
                                  const std::vector<PeerStatus>& peers) {
  const CollectiveReport& failed = failure.collective;
  if (failed.peer >= 0) return {};
  return BlameFor(failure, peers, [&](const PeerStatus& peer) -> std::string {
    const GroupProgress* progress = ProgressInGroup(failure, peer);
    if (progress == nullptr || progress->doing.empty() ||
        progress->sequence != failed.sequence ||
        progress->doing == failed.description) {
      return "";
    }
    return absl::StrCat("called ", progress->doing, " instead");
  });
}

std::string Where(const Failure& failure) {
  return absl::StrFormat(
      "%s failed on %s of %d in %s, %.1f s after it was started",
      failure.attempted, Named(failure, failure.rank), failure.world_size,
      failure.collective.description, failure.collective.seconds_since);
}

absl::StatusCode CodeOf(const Failure& failure, bool somebody_is_gone) {
  if (somebody_is_gone) return absl::StatusCode::kUnavailable;
  if (TimedOut(failure)) return absl::StatusCode::kDeadlineExceeded;
  return absl::StatusCode::kInternal;
}

std::string Advice(const Failure& failure, absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "see what that rank printed last";
    case absl::StatusCode::kFailedPrecondition:
      return "make all ranks call the same collectives in the same order";
    case absl::StatusCode::kDeadlineExceeded:
      return absl::StrCat(
          "see what the late rank does instead. If it only needs more time, "
          "raise the collective timeout (now ",
          absl::FormatDuration(failure.collective_timeout), ")");
    default:
      return "see what the other ranks printed";
  }
}

// Both calls of a mismatch, without the options in which they never differ.
std::string Shortened(std::string error) {
  constexpr absl::string_view kOptions = ", TensorDeviceTypes=TensorOptions(";
  for (size_t begin = error.find(kOptions.data()); begin != std::string::npos;
       begin = error.find(kOptions.data(), begin)) {
    size_t end = begin + kOptions.size();
    for (int depth = 1; depth > 0 && end < error.size(); ++end) {
      depth += (error[end] == '(') - (error[end] == ')');
    }
    error.erase(begin, end - begin);
  }
  return absl::StrReplaceAll(error, {{".Collectives", ". Collectives"},
                                     {"aspects: \t ", "aspects: "},
                                     {"vs ", " vs "}});
}

// The ranks that DescribeFailure names, with their faults.
std::vector<Blame> FindBlame(const Failure& failure,
                             const std::vector<PeerStatus>& peers) {
  std::vector<Blame> blames = BlameGone(failure, peers);
  // A failing rank closes its connections, so later errors elsewhere are not
  // due to a rank that is merely late.
  if (blames.empty() && !TimedOut(failure)) {
    blames = BlameFirstFailed(failure, peers);
  }
  if (blames.empty()) blames = BlameLate(failure, peers);
  if (blames.empty()) blames = BlameFirstFailed(failure, peers);
  if (blames.empty()) blames = BlameDifferent(failure, peers);
  return blames;
}

}  // namespace

absl::Status DescribeMismatch(const Failure& failure) {
  return absl::FailedPreconditionError(
      absl::StrCat(Where(failure), ": ", Shortened(failure.error), "; ",
                   Advice(failure, absl::StatusCode::kFailedPrecondition)));
}

absl::Status DescribeFailure(
    const Failure& failure,
    const absl::StatusOr<std::vector<PeerStatus>>& peers) {
  if (!peers.ok()) {
    return absl::UnavailableError(absl::StrCat(
        Where(failure), ": the ranks' store",
        failure.store_address.empty() ? "" : " at ", failure.store_address,
        " does not answer (", peers.status().message(),
        "), so the process that serves it, rank 0 or the launcher, is probably "
        "dead, or its machine cut off from this one (",
        failure.error, ")"));
  }
  const absl::StatusCode code =
      CodeOf(failure, std::any_of(peers->begin(), peers->end(), IsGone));
  const std::vector<Blame> blames = FindBlame(failure, *peers);
  const std::string culprits =
      !blames.empty()
          ? absl::StrJoin(blames, "; ",
                          [](std::string* text, const Blame& blame) {
                            absl::StrAppend(text, blame.what);
                          })
      : failure.collective.peer >= 0 ? "every rank is alive"
                                     : "every rank is alive and has started it";
  return absl::Status(
      code, absl::StrCat(Where(failure), ": ", culprits, " (", failure.error,
                         "); ", Advice(failure, code)));
}

absl::Status ExplainByPeers(const Failure& failure, c10d::Store& store) {
  constexpr absl::Duration kPatience = absl::Milliseconds(2500);
  const absl::StatusOr<std::vector<PeerStatus>> peers =
      QueryPeers(store, failure.rank, failure.world_size, kPatience);
  if (peers.ok()) ReportBlame(store, failure.rank, FindBlame(failure, *peers));
  return DescribeFailure(failure, peers);
}

absl::Status DescribeOtherFailure(const Failure& failure) {
  return absl::InternalError(absl::StrCat(
      failure.attempted, " failed on ", Named(failure, failure.rank), " of ",
      failure.world_size, ": ", failure.error));
}

}  // namespace rankwise
