#include "tests/faults/server_faults.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/test_process.h"
#include "records/record.h"
#include "records/record_reader.h"
#include "tests/faults/campaign.h"
#include "tests/trainer/trainer_process.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int kWorkers = 3;
constexpr int64_t kSteps = 60;  // two epochs
constexpr absl::Duration kTimeout = absl::Seconds(3);

const char* const kBackends[] = {"gloo", "shm"};
const char* const kConsistencies[] = {"bsp", "ssp:2", "async"};

std::vector<std::string> FlagsOf(const ServerFault& fault,
                                 const std::string& dir) {
  constexpr int kBatch = 16;
  return {absl::StrCat("--nproc=", fault.servers + kWorkers),
          absl::StrCat("--servers=", fault.servers),
          absl::StrCat("--backend=", fault.backend),
          absl::StrCat("--consistency=", fault.consistency),
          "--model=mlp",
          "--width=640",
          absl::StrCat("--batch_size=", kBatch),
          absl::StrCat("--train_size=", kSteps / 2 * kWorkers * kBatch),
          "--test_size=64",
          "--epochs=2",
          "--threads=1",
          "--log_every=1",
          absl::StrCat("--collective_timeout=", absl::FormatDuration(kTimeout)),
          "--checkpoint_every=20",
          "--checkpoint_dir=" + dir + "/checkpoints",
          "--record=" + dir + "/run.jsonl"};
}

// Polls until holds(). Returns the elapsed time; nullopt after the limit.
template <typename Condition>
std::optional<absl::Duration> AwaitWithin(SteadyTime start,
                                          absl::Duration limit,
                                          Condition holds) {
  while (!holds()) {
    if (ElapsedSince(start) > limit) return std::nullopt;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return ElapsedSince(start);
}

// Checks that every worker but the lost one has recorded all of its steps.
absl::Status CheckSteps(const ServerFault& fault, const std::string& dir) {
  std::map<int64_t, int64_t> steps;  // by rank
  RETURN_IF_ERROR(
      VisitRecords(dir + "/run.jsonl", {.tolerate_torn_lines = true},
                   [&](const Record& record) {
                     if (const auto* step = std::get_if<StepRecord>(&record))
                       ++steps[step->rank];
                     return absl::OkStatus();
                   })
          .status());
  for (int rank = fault.servers; rank < fault.servers + kWorkers; ++rank) {
    if (rank == fault.rank || steps[rank] == kSteps) continue;
    return Wrong(absl::StrCat("worker ", rank, " has recorded ", steps[rank],
                              " of ", kSteps, " steps"));
  }
  return absl::OkStatus();
}

// Checks that the server reports the lost worker or, if all workers had
// finished, that the job ends.
absl::Status CheckWorkerFault(const ServerFault& fault, TestProcess& job,
                              std::vector<pid_t> ranks, absl::Duration limit,
                              absl::Duration slack, const std::string& dir,
                              std::string* ended) {
  const SteadyTime start = SteadyNow();
  const std::string report = absl::StrCat("warning: rank ", fault.rank,
                                          ", a worker, no longer answers");
  const std::optional<absl::Duration> noticed = AwaitWithin(start, limit, [&] {
    return absl::StrContains(job.Stderr(), report) ||
           job.Wait(absl::ZeroDuration()) >= 0;
  });
  if (!noticed.has_value()) {
    return Wrong(absl::StrCat("the loss was not reported within ",
                              absl::FormatDuration(limit)));
  }
  ranks.erase(ranks.begin() + fault.rank);
  if (!AllGone(ranks, kPatience))
    return Wrong("the other ranks did not finish");
  // The job may wait until the timeout, as a stopped rank could continue.
  const absl::Duration left =
      std::max(limit - ElapsedSince(start), absl::Seconds(2) + slack);
  const int code = job.Wait(left);
  if (code != 0) {
    return Wrong(absl::StrCat("the launcher ",
                              code < 0 ? std::string("did not end")
                                       : absl::StrCat("returned ", code)));
  }
  *ended = absl::StrFormat("reported after %.2f s, the others finished",
                           absl::ToDoubleSeconds(*noticed));
  return CheckSteps(fault, dir);
}

absl::Status CheckServerFault(const ServerFault& fault, TestProcess& job,
                              absl::Duration limit, std::string* ended) {
  // The launcher's limit from a failure to the end of the last rank.
  constexpr absl::Duration kToEnd = absl::Seconds(5);
  const SteadyTime start = SteadyNow();
  const std::string name =
      absl::StrCat("[launcher] rank ", fault.rank, " (process ");
  const std::optional<absl::Duration> named = AwaitWithin(
      start, limit, [&] { return absl::StrContains(job.Stderr(), name); });
  if (!named.has_value()) {
    return Wrong(absl::StrCat("the server was not named within ",
                              absl::FormatDuration(limit)));
  }
  const int code = job.Wait(limit + kToEnd - ElapsedSince(start));
  if (code == 0) return Wrong("the job returned 0");
  if (code < 0) {
    return Wrong(absl::StrFormat(
        "the server was named after %.2f s, but the job did not end in time",
        absl::ToDoubleSeconds(*named)));
  }
  *ended = absl::StrFormat("named after %.2f s, job ended after %.2f s",
                           absl::ToDoubleSeconds(*named),
                           absl::ToDoubleSeconds(ElapsedSince(start)));
  return absl::OkStatus();
}

absl::Status Strike(const ServerFault& fault, absl::Duration slack,
                    TestProcess& job, const std::string& dir,
                    std::string* ended) {
  if (!job.AwaitOutput("  step ", fault.after_steps, kPatience))
    return Wrong("the job did not reach the point of the fault");
  absl::SleepFor(fault.delay);
  const std::vector<pid_t> ranks = ChildrenOf(job.pid());
  if (ranks.size() != static_cast<size_t>(fault.servers + kWorkers))
    return Wrong("the job ended before the fault");
  kill(ranks[static_cast<size_t>(fault.rank)], fault.signal);
  const absl::Duration limit =
      slack + (fault.signal == SIGKILL ? absl::Seconds(1)
                                       : kTimeout + absl::Seconds(2));
  RETURN_IF_ERROR(fault.of_a_server ? CheckServerFault(fault, job, limit, ended)
                                    : CheckWorkerFault(fault, job, ranks, limit,
                                                       slack, dir, ended));
  return AllGone(ranks) ? absl::OkStatus() : Wrong("a rank was left behind");
}

}  // namespace

std::string ServerFault::Describe() const {
  return absl::StrFormat(
      "parameter_server, %s, %s, %d server(s), rank %d (a %s), %s", backend,
      consistency, servers, rank, of_a_server ? "server" : "worker",
      signal == SIGKILL ? "SIGKILL" : "SIGSTOP");
}

ServerFault DrawServerFault(int number, std::mt19937_64& random) {
  const auto below = [&random](uint64_t n) {
    return static_cast<int>(random() % n);
  };
  ServerFault fault;
  fault.signal = number % 2 == 0 ? SIGKILL : SIGSTOP;
  fault.of_a_server = number / 2 % 2 == 1;
  fault.consistency = kConsistencies[number / 4 % std::size(kConsistencies)];
  fault.backend = kBackends[number / 12 % std::size(kBackends)];
  fault.servers = 1 + below(2);
  fault.rank = fault.of_a_server ? below(static_cast<uint64_t>(fault.servers))
                                 : fault.servers + below(kWorkers);
  fault.after_steps = 2 + below(kSteps / 2);
  fault.delay = absl::Milliseconds(below(100));
  return fault;
}

absl::Status StrikeServerJob(const ServerFault& fault, absl::Duration slack,
                             const std::string& dir, std::string* ended) {
  const auto job = StartTrainer("parameter_server", FlagsOf(fault, dir));
  const absl::Status status = Strike(fault, slack, *job, dir, ended);
  if (!status.ok())
    std::printf("%s\n%s\n", job->Stdout().c_str(), job->Stderr().c_str());
  return status;
}

}  // namespace rankwise
