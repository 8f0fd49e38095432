#include "comm_bench/question.h"

#include <cstdio>
#include <vector>

#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/run_rank.h"
#include "comm_bench/sweep/refuse.h"
#include "comm_bench/sweep/relaunch.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/launcher.h"
#include "records/command_line.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// DescribeCommandLine, with all flags of this folder under one heading.
void Describe(const char* usage) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.normalize_filename = [](absl::string_view file) {
    return std::string(absl::StrContains(file, "comm_bench/") ? "comm_bench/"
                                                              : file);
  };
  config.contains_help_flags = [](absl::string_view file) {
    return file == "comm_bench/" ||
           absl::StrContains(file, "parallel/launch/comm_flags");
  };
  config.contains_helpshort_flags = config.contains_help_flags;
  absl::SetFlagsUsageConfig(config);
}

int ListCollectives() {
  for (const Collective* collective : AllCollectives())
    std::printf("%-15s %s\n", collective->name, collective->summary);
  return 0;
}

absl::Status AddFake(const BenchConfig& config, FakeBackendConfig& fake) {
  fake.skew_us = config.fake_skew_us;
  fake.tail_every = config.fake_tail_every;
  fake.tail_us = config.fake_tail_us;
  if (!config.fake_virtual_time || fake.alpha_us > 0) return absl::OkStatus();
  return Refuse(
      "--fake_virtual_time: needs --fake_alpha_us above 0, or calls take no "
      "time");
}

// Returns the properties of the ranks that are known before the launch.
Job ExpectedJob(const CommConfig& comm, const LaunchConfig& launch) {
  Job job;
  job.world_size = job.ranks_of_host = launch.nproc;
  if (comm.backend != "auto") job.backend = comm.backend;
  job.launcher = "nproc";
  if (VisibleGpus() == 0) job.device = c10::Device(c10::kCPU);
  job.memory_bytes = CollectHostInfo().memory_bytes;
  return job;
}

// Returns main's exit code, or why nothing can be run.
absl::StatusOr<int> Run(const Question& question, int argc, char** argv) {
  const std::vector<char*> words = ParseFlags(argc, argv);
  if (words.size() > 1) {
    return Refuse("\"", words[1], "\" is not a flag; flags look like ",
                  "--nproc=2");
  }
  ASSIGN_OR_RETURN(CommConfig comm, CommConfigFromFlags());
  FlagChecks checks;
  BenchConfig config;
  for (const auto& read : question.flags) read(config, checks);
  RETURN_IF_ERROR(checks.status());
  RETURN_IF_ERROR(AddFake(config, comm.fake));
  ASSIGN_OR_RETURN(const LaunchConfig launch, LaunchConfigFromFlags());
  if (config.list) return ListCollectives();
  if (!InsideLauncher() && !SimulatesPeers(comm.backend)) {
    RETURN_IF_ERROR(question.plan(config, ExpectedJob(comm, launch)).status());
    if (config.relaunch > 1) return Relaunch(config, launch, argc, argv);
    if (launch.nproc > 1) return LaunchRanks(launch, argc, argv);
  }
  return RunRanks(question, config, comm);
}

}  // namespace

int Answer(const Question& question, int argc, char** argv) {
  Describe(question.usage);
  const absl::StatusOr<int> code = Run(question, argc, argv);
  return code.ok() ? *code : Report(question.name, code.status());
}

}  // namespace rankwise::comm_bench
