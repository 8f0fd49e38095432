// Measures what communication costs:
//
//   bazel run //comm_bench -- --nproc=2 --collectives=all
//
// docs/comm_bench.md describes the modes and what the columns mean.

#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/bench_flags.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/run_rank.h"
#include "comm_bench/sweep/plan.h"
#include "comm_bench/sweep/relaunch.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "records/command_line.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(bool, list, false, "say what each collective does, and end");

namespace rankwise::comm_bench {
namespace {

int List() {
  for (const Collective* collective : AllCollectives())
    std::printf("%-15s %s\n", collective->name, collective->summary);
  return 0;
}

// What is known of the ranks before any is started.
Job ExpectedJob(const CommConfig& comm, const LaunchConfig& launch) {
  Job job;
  job.world_size = job.ranks_of_host = launch.nproc;
  if (comm.backend != "auto") job.backend = comm.backend;
  job.launcher = "nproc";
  if (VisibleGpus() == 0) job.device = c10::Device(c10::kCPU);
  job.memory_bytes = CollectHostInfo().memory_bytes;
  return job;
}

// Starts the ranks, or is one of them. Returns main's exit code, or why nothing
// can be run.
absl::StatusOr<int> Run(int argc, char** argv) {
  const std::vector<char*> words = ParseFlags(argc, argv);
  if (words.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", words[1], "\" is not a flag; flags look like --nproc=2"));
  }
  ASSIGN_OR_RETURN(const BenchConfig config, BenchConfigFromFlags());
  ASSIGN_OR_RETURN(CommConfig comm, CommConfigFromFlags());
  RETURN_IF_ERROR(AddFakeFlags(comm));
  ASSIGN_OR_RETURN(const LaunchConfig launch, LaunchConfigFromFlags());
  if (absl::GetFlag(FLAGS_list)) return List();
  if (!InsideLauncher() && !PretendsPeers(comm.backend)) {
    RETURN_IF_ERROR(MakePlan(config, ExpectedJob(comm, launch)).status());
    if (config.relaunch > 1) return Relaunch(config, launch, argc, argv);
    if (launch.nproc > 1) return LaunchRanks(launch, argc, argv);
  }
  return RunRanks(config, comm);
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  rankwise::DescribeCommandLine(
      "Measures what communication costs.\n"
      "  bazel run //comm_bench -- --nproc=2 --collectives=all\n"
      "  torchrun --no-python --nproc-per-node=2 "
      "bazel-bin/comm_bench/comm_bench"
      "\nAll flags: --help",
      "comm_bench/");
  const absl::StatusOr<int> code = rankwise::comm_bench::Run(argc, argv);
  return code.ok() ? *code
                   : rankwise::comm_bench::Report("comm_bench", code.status());
}
