#include "tests/cluster/host_faults.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "tests/cluster/cluster.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int kHosts = 2;
// So slow that a step outlasts the commands that break the link.
constexpr Cluster::Options kOptions = {kHosts, "50mbit"};

Ranks StartJob(const Cluster& cluster, const CampaignTrainer& trainer,
               const std::string& dir, const std::string& more) {
  return StartRanks(
      cluster, kHosts, trainer.ranks / kHosts,
      absl::StrCat("trainers/", trainer.name, " --backend=gloo ",
                   absl::StrJoin(CampaignFlags(trainer, dir), " "), more));
}

int HostOf(const HostFault& fault, size_t rank) {
  return 1 + static_cast<int>(rank) * kHosts / fault.trainer->ranks;
}

// Returns the errors of all ranks that are not on a vanished host.
absl::StatusOr<std::string> AwaitEnds(const HostFault& fault,
                                      const Ranks& ranks,
                                      absl::Duration bound) {
  const Deadline deadline(bound);
  std::string said;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int code =
        ranks[rank]->Wait(std::max(deadline.left(), absl::ZeroDuration()));
    if (code < 0) {
      return Wrong(absl::StrCat("rank ", rank, " did not end within ",
                                absl::FormatDuration(bound)));
    }
    if (fault.is_gone && HostOf(fault, rank) == fault.host) continue;
    if (code == 0) return Wrong("the job ended before the fault");
    absl::StrAppend(&said, ranks[rank]->Stderr());
  }
  return said;
}

// Checks that `said` names the host, one of its ranks, or all of them.
absl::Status CheckNamed(const HostFault& fault, const std::string& said) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < static_cast<size_t>(fault.trainer->ranks);
       ++rank) {
    if (HostOf(fault, rank) == fault.host) ranks.push_back(rank);
  }
  std::vector<std::string> names = {
      absl::StrCat("host", fault.host),
      absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " have")};
  for (const size_t rank : ranks)
    names.push_back(absl::StrCat("rank ", rank, " "));
  for (const std::string& name : names) {
    if (absl::StrContains(said, name)) return absl::OkStatus();
  }
  return Wrong("the errors do not name the host: " + said);
}

absl::Status CheckResumed(const HostFault& fault, const Ranks& ranks,
                          const std::string& dir) {
  for (const auto& rank : ranks) {
    const int code = rank->Wait(kPatience);
    if (code == 0) continue;
    return Wrong(absl::StrCat("after --resume a rank exited with code ", code,
                              ": ", rank->Stderr()));
  }
  RETURN_IF_ERROR(CheckFiles(dir));
  int64_t restarts = 0;
  ASSIGN_OR_RETURN(const Losses losses, ReadLosses(dir, &restarts));
  ASSIGN_OR_RETURN(const Losses* expected, UndisturbedLosses(*fault.trainer));
  return losses == *expected
             ? absl::OkStatus()
             : Wrong("the losses differ from those of an undisturbed job");
}

}  // namespace

std::string HostFault::Describe() const {
  return absl::StrFormat("%s, host%d, %s in %s", trainer->name, host,
                         is_gone ? "host gone" : "link down", moment.Name());
}

HostFault DrawHostFault(std::mt19937_64& random) {
  HostFault fault;
  fault.trainer = &DrawTrainer(random);
  fault.moment = DrawMoment(random);
  fault.is_gone = random() % 2 == 0;
  fault.host = 1 + static_cast<int>(random() % kHosts);
  return fault;
}

std::string WhyNoHosts() { return Cluster(kOptions).why_not(); }

absl::Status StrikeHost(const HostFault& fault, const std::string& dir,
                        std::string* ended) {
  const Cluster cluster(kOptions);
  const Ranks ranks = StartJob(cluster, *fault.trainer, dir, "");
  RETURN_IF_ERROR(AwaitMoment(fault.moment, *ranks[0], dir));
  const SteadyTime start = SteadyNow();
  if (fault.is_gone) {
    cluster.Destroy(fault.host);
  } else {
    cluster.SetLink(fault.host, false);
  }
  // An isolated rank waits for the others, and then for the store's answer.
  const absl::Duration bound =
      kGrace + kCollectiveTimeout +
      (fault.moment.phase == kStartUp ? kRendezvousTimeout
                                      : kCollectiveTimeout);
  ASSIGN_OR_RETURN(const std::string said, AwaitEnds(fault, ranks, bound));
  const double seconds = absl::ToDoubleSeconds(ElapsedSince(start));
  RETURN_IF_ERROR(CheckNamed(fault, said));
  for (int host = 1; host <= kHosts; ++host) {
    if (!cluster.ProgramsOn(host).empty())
      return Wrong(absl::StrCat("a process is still running on host", host));
  }
  cluster.SetLink(fault.host, true);
  RETURN_IF_ERROR(CheckResumed(
      fault, StartJob(cluster, *fault.trainer, dir, " --resume"), dir));
  *ended = absl::StrFormat(
      "host named, ranks ended in %.2f s, resumed, same losses", seconds);
  return absl::OkStatus();
}

}  // namespace rankwise
