// Measures what communication costs:
//
//   bazel run //comm_bench -- --nproc=2 --collectives=all
//
// docs/comm_bench.md describes the modes and what the columns mean.

#include <signal.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/bench_flags.h"
#include "comm_bench/collectives/collectives.h"
#include "comm_bench/interrupt.h"
#include "comm_bench/run_rank.h"
#include "comm_bench/sweep/measure_on.h"
#include "comm_bench/sweep/relaunch.h"
#include "comm_bench/sweep/sweep.h"
#include "parallel/comm/comm_flags.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/plain_error.h"
#include "parallel/comm/rank_env.h"
#include "parallel/device/device_facts.h"
#include "records/host.h"
#include "records/parse_flags.h"

ABSL_FLAG(bool, list, false, "say what each collective does, and end");

namespace rankwise::comm_bench {
namespace {

struct Asked {
  BenchConfig bench;
  CommConfig comm;
  LaunchConfig launch;
};

absl::StatusOr<Asked> ReadFlags(const std::vector<char*>& words) {
  if (words.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", words[1], "\" is not a flag; flags look like --nproc=2"));
  }
  const absl::StatusOr<BenchConfig> bench = BenchConfigFromFlags();
  if (!bench.ok()) return bench.status();
  absl::StatusOr<CommConfig> comm = CommConfigFromFlags();
  if (!comm.ok()) return comm.status();
  if (absl::Status fake = AddFakeFlags(comm->fake); !fake.ok()) return fake;
  const absl::StatusOr<LaunchConfig> launch = LaunchConfigFromFlags();
  if (!launch.ok()) return launch.status();
  return Asked{*bench, *comm, *launch};
}

// What all ranks have agreed on, rank 0 says for them.
bool SaidByRankZero(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDataLoss(status);
}

int Report(const std::string& who, const absl::Status& status, int rank = 0) {
  if (status.ok()) return 0;
  if (rank == 0 || !SaidByRankZero(status))
    std::fprintf(stderr, "%s: %s%s\n", who.c_str(),
                 absl::IsCancelled(status) ? "" : "error: ",
                 std::string(status.message()).c_str());
  if (absl::IsCancelled(status)) {
    // Another rank may have had the signal.
    return 128 + (InterruptSignal() == 0 ? SIGINT : InterruptSignal());
  }
  return ExitCode(status);
}

// Only where this program starts the ranks itself can it start them again.
absl::Status CheckRelaunch(const Asked& asked, const std::string& launcher) {
  if (asked.bench.relaunch == 1 || launcher == "nproc") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--relaunch=", asked.bench.relaunch,
      ": only where this program starts "
      "the ranks itself, by --nproc; start the job several times instead"));
}

// This process as one rank, or as all of --backend=fake.
int Run(const Asked& asked) {
  PrepareRankProcess();
  if (asked.comm.backend == "fake") {
    const absl::Status relaunch = CheckRelaunch(asked, "");
    if (!relaunch.ok()) return Report("comm_bench", relaunch);
    return Report("comm_bench",
                  RunFakeRanks(asked.bench, asked.comm.fake,
                               FakeRankEnvFromFlags().world_size));
  }
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv({.master_required = asked.comm.file_store.empty()});
  if (!env.ok()) return Report("comm_bench", env.status());
  const absl::Status relaunch = CheckRelaunch(asked, env->launcher);
  if (!relaunch.ok()) return Report("comm_bench", relaunch);
  absl::Status status;
  try {
    status = RunRank(asked.bench, asked.comm, *env);
  } catch (const std::exception& error) {  // while connecting
    status = absl::InternalError(PlainMessage(error));
  }
  return Report(env->world_size == 1
                    ? "comm_bench"
                    : absl::StrCat("comm_bench: rank ", env->rank),
                status, env->rank);
}

int List() {
  for (const Collective* collective : AllCollectives())
    std::printf("%-15s %s\n", collective->name, collective->summary);
  return 0;
}

// What can be refused before any rank is started.
absl::Status CheckLocally(const Asked& asked) {
  if (VisibleGpus() == 0) {
    absl::Status possible = MeasureOn(c10::kCPU, asked.bench).status();
    if (possible.ok()) {
      possible = CheckMemory(asked.bench, asked.launch.nproc,
                             CollectHostInfo().memory_bytes);
    }
    if (!possible.ok()) return possible;
  }
  if (asked.bench.mode != "sweep") return absl::OkStatus();
  return CheckSweep(asked.bench, asked.launch.nproc,
                    asked.comm.backend == "auto" ? "gloo" : asked.comm.backend);
}

int Main(int argc, char** argv) {
  DescribeCommandLine(
      "Measures what communication costs.\n"
      "  bazel run //comm_bench -- --nproc=2 --collectives=all\n"
      "  torchrun --no-python --nproc-per-node=2 "
      "bazel-bin/comm_bench/comm_bench"
      "\nAll flags: --help",
      "comm_bench/");
  const absl::StatusOr<Asked> asked = ReadFlags(ParseFlags(argc, argv));
  if (!asked.ok()) return Report("comm_bench", asked.status());
  if (absl::GetFlag(FLAGS_list)) return List();
  if (!InsideLauncher() && asked->comm.backend != "fake") {
    const absl::Status possible = CheckLocally(*asked);
    if (!possible.ok()) return Report("comm_bench", possible);
    if (asked->bench.relaunch > 1)
      return Relaunch(asked->bench, asked->launch, argc, argv);
    if (asked->launch.nproc > 1) return LaunchRanks(asked->launch, argc, argv);
  }
  return Run(*asked);
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  return rankwise::comm_bench::Main(argc, argv);
}
