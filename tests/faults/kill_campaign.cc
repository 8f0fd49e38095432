// Kills and stops random ranks of training jobs, and on request takes down
// emulated hosts and the links between them. Checks the guarantees for such
// jobs: the error names the rank or host, all ranks end within a time limit,
// the job continues from its last checkpoint to the same losses as an
// undisturbed one, and no process or partially written file is left.
//
//   bazel run //tests/faults:kill_campaign -- --kills=80 --host_faults=20
//   bazel run //tests/faults:kill_campaign -- --kills=0 --server_faults=50

#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "records/command_line.h"
#include "tests/cluster/host_faults.h"
#include "tests/faults/campaign.h"
#include "tests/faults/server_faults.h"
#include "tests/trainer/trainer_process.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(int, kills, 100,
          "number of jobs; one rank of each is killed or stopped");
ABSL_FLAG(int, host_faults, 0,
          "number of jobs on two emulated hosts; one host of each, or the link "
          "to it, fails (Linux, as root)");
ABSL_FLAG(int, server_faults, 0,
          "number of parameter_server jobs; one server or worker of each is "
          "killed or stopped");
ABSL_FLAG(absl::Duration, slack, absl::ZeroDuration(),
          "added to the limits of --server_faults, for a loaded machine");
ABSL_FLAG(int, seed, 1, "random seed for what fails, how and when");

namespace rankwise {
namespace {

namespace fs = std::filesystem;

struct Fault {
  const CampaignTrainer* trainer;
  Moment moment;
  int signal;
  int rank;

  std::string Describe() const {
    return absl::StrFormat("%s, rank %d, %s in %s", trainer->name, rank,
                           signal == SIGKILL ? "SIGKILL" : "SIGSTOP",
                           moment.Name());
  }
};

Fault DrawFault(std::mt19937_64& random) {
  Fault fault;
  fault.trainer = &DrawTrainer(random);
  fault.moment = DrawMoment(random);
  fault.signal = random() % 3 == 0 ? SIGSTOP : SIGKILL;
  fault.rank = static_cast<int>(random() % fault.trainer->ranks);
  return fault;
}

absl::Status AwaitRestart(const TestProcess& job, absl::Duration bound) {
  const Deadline deadline(bound);
  while (!absl::StrContains(job.Stderr(), "restart 1 of 1")) {
    if (deadline.passed()) {
      return Wrong(absl::StrCat("the ranks did not end within ",
                                absl::FormatDuration(bound)));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

// Checks that the launcher's error contains the rank.
absl::Status CheckNamed(const Fault& fault, const std::string& err) {
  const std::string rank = absl::StrCat("[launcher] rank ", fault.rank, " (");
  return absl::StrContains(err, rank)
             ? absl::OkStatus()
             : Wrong("the error does not name the rank");
}

absl::Status AwaitRanks(const TestProcess& job, int ranks) {
  const Deadline deadline(kPatience);
  while (ChildrenOf(job.pid()).size() < static_cast<size_t>(ranks)) {
    if (deadline.passed()) return Wrong("the job has not started its ranks");
    absl::SleepFor(absl::Microseconds(200));
  }
  return absl::OkStatus();
}

// Checks the job to its end after the launcher's restart.
absl::Status CheckRestarted(const Fault& fault, TestProcess& job,
                            const std::vector<pid_t>& ranks,
                            const std::string& dir) {
  const int code = job.Wait(kPatience);
  if (code != 0) return Wrong(absl::StrCat("the job exited with code ", code));
  if (!AllGone(ranks)) return Wrong("a rank was left behind");
  RETURN_IF_ERROR(CheckNamed(fault, job.Stderr()));
  RETURN_IF_ERROR(CheckFiles(dir));
  int64_t restarts = 0;
  ASSIGN_OR_RETURN(const Losses losses, ReadLosses(dir, &restarts));
  if (restarts != 1)
    return Wrong("the records do not contain exactly one restart");
  ASSIGN_OR_RETURN(const Losses* expected, UndisturbedLosses(*fault.trainer));
  return losses == *expected
             ? absl::OkStatus()
             : Wrong("the losses differ from those of an undisturbed job");
}

absl::Status StrikeJob(const Fault& fault, TestProcess& job,
                       const std::string& dir, std::string* ended) {
  RETURN_IF_ERROR(AwaitRanks(job, fault.trainer->ranks));
  RETURN_IF_ERROR(AwaitMoment(fault.moment, job, dir));
  const std::vector<pid_t> ranks = ChildrenOf(job.pid());
  if (ranks.size() <= static_cast<size_t>(fault.rank))
    return Wrong("the job ended before the fault");
  const SteadyTime start = SteadyNow();
  kill(ranks[static_cast<size_t>(fault.rank)], fault.signal);
  absl::Duration bound = kGrace;
  if (fault.signal == SIGSTOP) {
    bound += kCollectiveTimeout;
    // During start-up the others wait until all ranks have arrived.
    if (fault.moment.phase == kStartUp) bound += kRendezvousTimeout;
  }
  RETURN_IF_ERROR(AwaitRestart(job, bound));
  const absl::Duration took = ElapsedSince(start);
  RETURN_IF_ERROR(CheckRestarted(fault, job, ranks, dir));
  *ended =
      absl::StrFormat("rank named, ranks ended in %.2f s, resumed, same losses",
                      absl::ToDoubleSeconds(took));
  return absl::OkStatus();
}

absl::Status Strike(const Fault& fault, const std::string& dir,
                    std::string* ended) {
  std::vector<std::string> flags = CampaignFlags(*fault.trainer, dir);
  flags.push_back(absl::StrCat("--nproc=", fault.trainer->ranks));
  flags.push_back("--max_restarts=1");
  const auto job = StartTrainer(fault.trainer->name, flags);
  const absl::Status status = StrikeJob(fault, *job, dir, ended);
  if (!status.ok())
    std::printf("%s\n%s\n", job->Stdout().c_str(), job->Stderr().c_str());
  return status;
}

using StrikeFunction =
    std::function<absl::Status(const std::string& dir, std::string* ended)>;

// Prints a line; returns whether the job passed.
bool Report(int number, const std::string& what, const StrikeFunction& strike) {
  const std::string dir = TemporaryPath("campaign");
  fs::create_directories(dir);
  std::string ended;
  const absl::Status status = strike(dir, &ended);
  if (!status.ok())
    ended = absl::StrCat(status.message(), "; its files are in ", dir);
  std::printf("%3d %s: %s\n", number, what.c_str(), ended.c_str());
  std::fflush(stdout);
  if (status.ok()) fs::remove_all(dir);
  return status.ok();
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv);
  const int kills = absl::GetFlag(FLAGS_kills);
  const int host_faults = absl::GetFlag(FLAGS_host_faults);
  if (host_faults > 0) {
    const std::string why_not = WhyNoHosts();
    if (!why_not.empty()) {
      std::fprintf(stderr, "kill_campaign: --host_faults: %s\n",
                   why_not.c_str());
      return kFailed;
    }
  }
  std::mt19937_64 random(static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)));
  int broken = 0;
  for (int number = 1; number <= kills; ++number) {
    const Fault fault = DrawFault(random);
    broken += !Report(number, fault.Describe(),
                      [&](const std::string& dir, std::string* ended) {
                        return Strike(fault, dir, ended);
                      });
  }
  for (int number = kills + 1; number <= kills + host_faults; ++number) {
    const HostFault fault = DrawHostFault(random);
    broken += !Report(number, fault.Describe(),
                      [&](const std::string& dir, std::string* ended) {
                        return StrikeHost(fault, dir, ended);
                      });
  }
  const int server_faults = absl::GetFlag(FLAGS_server_faults);
  for (int number = 0; number < server_faults; ++number) {
    const ServerFault fault = DrawServerFault(number, random);
    broken += !Report(kills + host_faults + number + 1, fault.Describe(),
                      [&](const std::string& dir, std::string* ended) {
                        return StrikeServerJob(
                            fault, absl::GetFlag(FLAGS_slack), dir, ended);
                      });
  }
  const int all = kills + host_faults + server_faults;
  std::printf("%d of %d jobs passed all checks\n", all - broken, all);
  return broken == 0 ? 0 : kFailed;
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) { return rankwise::Main(argc, argv); }
