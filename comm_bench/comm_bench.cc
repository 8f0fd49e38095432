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
#include "comm_bench/collectives/collective.h"
#include "comm_bench/interrupt.h"
#include "comm_bench/run_rank.h"
#include "comm_bench/sweep/plan.h"
#include "comm_bench/sweep/relaunch.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"
#include "records/command_line.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

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
  ASSIGN_OR_RETURN(const BenchConfig bench, BenchConfigFromFlags());
  ASSIGN_OR_RETURN(CommConfig comm, CommConfigFromFlags());
  RETURN_IF_ERROR(AddFakeFlags(comm.fake));
  ASSIGN_OR_RETURN(const LaunchConfig launch, LaunchConfigFromFlags());
  return Asked{bench, comm, launch};
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

// This process as one rank, or as all of --backend=fake.
int Run(const Asked& asked) {
  PrepareRankProcess();
  if (asked.comm.backend == "fake") {
    return Report("comm_bench",
                  RunFakeRanks(asked.bench, asked.comm.fake,
                               FakeRankEnvFromFlags().world_size));
  }
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv({.master_required = asked.comm.file_store.empty()});
  if (!env.ok()) return Report("comm_bench", env.status());
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

// What is known of the ranks before any is started.
Job ExpectedJob(const Asked& asked) {
  Job job;
  job.world_size = job.ranks_of_host = asked.launch.nproc;
  if (asked.comm.backend != "auto") job.backend = asked.comm.backend;
  job.launcher = "nproc";
  if (VisibleGpus() == 0) job.device = c10::Device(c10::kCPU);
  job.memory_bytes = CollectHostInfo().memory_bytes;
  return job;
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
    const auto possible = MakePlan(asked->bench, ExpectedJob(*asked));
    if (!possible.ok()) return Report("comm_bench", possible.status());
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
