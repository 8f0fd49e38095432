#include "parallel/comm/failure_report.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace rankwise {
namespace {

using Life = PeerStatus::Life;

bool TimedOut(const std::string& error) {
  const std::string lower = absl::AsciiStrToLower(error);
  return absl::StrContains(lower, "timed out") ||
         absl::StrContains(lower, "timeout") ||
         absl::StrContains(error, "failed to pass monitoredBarrier");
}

std::string LastStarted(const PeerStatus& peer) {
  if (peer.doing.empty()) return "it has not started any collective";
  return absl::StrCat("the last it started is ", peer.doing);
}

bool IsGone(const PeerStatus& peer) {
  return peer.life == Life::kDead || peer.life == Life::kSilent ||
         peer.life == Life::kLeft;
}

// Why `peer` is to blame; empty if it is not.
std::string Blame(const Failure& failure, const PeerStatus& peer) {
  const bool behind = peer.sequence < failure.collective.sequence;
  const std::string name = absl::StrCat("rank ", peer.rank);
  switch (peer.life) {
    case Life::kDead:
      return absl::StrCat(name, " is dead: ", peer.death);
    case Life::kSilent:
      return absl::StrCat(name,
                          " gives no sign of life (killed, stopped, or its "
                          "machine is cut off); ",
                          LastStarted(peer));
    case Life::kLeft:
      return absl::StrCat(name, " has left the job; ", LastStarted(peer));
    case Life::kFailed:
      if (!behind) return "";
      return absl::StrCat(name, " has failed earlier; ", LastStarted(peer));
    case Life::kAlive:
      if (!behind) return "";
      return absl::StrCat(name, " did not arrive: it is alive, and ",
                          LastStarted(peer));
    case Life::kUnknown:
      return "";
  }
  return "";
}

std::vector<std::string> BlameAll(const Failure& failure,
                                  const std::vector<PeerStatus>& peers) {
  std::vector<std::string> blames;
  for (const PeerStatus& peer : peers) {
    const std::string blame = Blame(failure, peer);
    if (!blame.empty()) blames.push_back(blame);
  }
  if (!blames.empty()) return blames;
  for (const PeerStatus& peer : peers) {
    if (peer.sequence == failure.collective.sequence && !peer.doing.empty() &&
        failure.collective.peer < 0 &&
        peer.doing != failure.collective.description) {
      blames.push_back(
          absl::StrCat("rank ", peer.rank, " called ", peer.doing, " instead"));
    }
  }
  return blames;
}

std::string Where(const Failure& failure) {
  return absl::StrFormat(
      "%s failed on rank %d of %d in %s, %.1f s after it "
      "was started",
      failure.attempted, failure.rank, failure.world_size,
      failure.collective.description, failure.collective.seconds_since);
}

absl::StatusCode CodeOf(const Failure& failure, bool somebody_is_gone) {
  if (somebody_is_gone) return absl::StatusCode::kUnavailable;
  if (TimedOut(failure.error)) return absl::StatusCode::kDeadlineExceeded;
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
          "see what the late rank does instead, or raise the collective "
          "timeout (now ",
          absl::FormatDuration(failure.collective_timeout), ")");
    default:
      return "see what the other ranks printed";
  }
}

// The two calls of a mismatch without the options that never tell them apart.
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

}  // namespace

bool IsMismatch(const std::string& error) {
  return absl::StrContains(error, "Detected mismatch between collectives");
}

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
        Where(failure), ": the ranks' store does not answer (",
        peers.status().message(),
        "), so the process that serves it, rank 0 or the launcher, is probably "
        "dead (",
        failure.error, ")"));
  }
  bool somebody_is_gone = false;
  for (const PeerStatus& peer : *peers) somebody_is_gone |= IsGone(peer);
  const absl::StatusCode code = CodeOf(failure, somebody_is_gone);
  const std::vector<std::string> blames = BlameAll(failure, *peers);
  const std::string culprits = blames.empty()
                                   ? "every rank is alive and has started it"
                                   : absl::StrJoin(blames, "; ");
  return absl::Status(
      code, absl::StrCat(Where(failure), ": ", culprits, " (", failure.error,
                         "); ", Advice(failure, code)));
}

absl::Status DescribeOtherFailure(const Failure& failure) {
  return absl::InternalError(
      absl::StrCat(failure.attempted, " failed on rank ", failure.rank, " of ",
                   failure.world_size, ": ", failure.error));
}

}  // namespace rankwise
