// The scaling study: trains at several world sizes, and says how well that
// scales. `bazel run //:study -- --help`; docs/metrics.md for the figures.

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/scaling_report.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_flags.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_runner.h"
#include "analysis/study/subprocess.h"
#include "records/host.h"

namespace rankwise {
namespace {

constexpr char kUsage[] =
    "Trains at several world sizes and prints how well that scales.\n"
    "  bazel run //:study                        1 and 2 ranks, 3 minutes\n"
    "  bazel run //:study -- --world_sizes=1,2,4\n"
    "  bazel run //:study -- --from=results/TIME  the table once more";

void PrintReport(const std::vector<RunTrace>& runs) {
  ScalingReportConfig config;
  config.throughput.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  std::cout << ScalingReport(runs, config) << std::flush;
}

void PrintCommands(const StudyConfig& config, const StudyPlan& plan,
                   const StudyRunnerConfig& runner) {
  for (const PlannedRun& run : plan.runs) {
    const std::string record =
        absl::StrCat(runner.output_dir, "/", run.FileStem(), ".jsonl");
    std::cout << runner.trainer_dir << "/" << run.trainer << " "
              << absl::StrJoin(TrainerArguments(config, run, record), " ")
              << "\n";
  }
}

// What is about to happen, before the first run.
void PrintHeading(const StudyConfig& config, size_t runs, const HostInfo& host,
                  const std::string& output_dir) {
  const int64_t threads = ThreadsPerRank(config);
  std::cout << "Study of " << absl::StrJoin(config.trainers, ", ")
            << " at world sizes " << absl::StrJoin(config.world_sizes, ", ")
            << ": " << runs << " runs of " << config.max_steps << " steps, "
            << threads << (threads == 1 ? " thread" : " threads")
            << " per rank at every size, on " << host.cores << " cores of "
            << (host.cpu_model.empty() ? "a CPU" : host.cpu_model)
            << ".\nRecords go to " << output_dir << ".\n"
            << std::flush;
}

void PrintNotRun(const StudyPlan& plan) {
  for (const std::string& reason : plan.not_run) {
    std::cout << "Not run: " << reason << ".\n";
  }
}

// The exit code of a study that was run.
int PrintResult(const StudyResult& result, const StudyPlan& plan,
                const std::string& output_dir) {
  std::cout << "\n";
  if (!result.runs.empty()) PrintReport(result.runs);
  PrintNotRun(plan);
  for (const std::string& failed : result.failed) {
    std::cout << "Failed: " << failed << "\n";
  }
  if (result.interrupted_by != 0) {
    std::cout << "Interrupted: the running trainer was ended; "
              << result.runs.size() << " of " << plan.runs.size()
              << " runs are complete and kept.\n";
  }
  std::cout << "Records: " << output_dir
            << "\nThis table again: --from=" << output_dir
            << " --warmup_steps=" << absl::GetFlag(FLAGS_warmup_steps)
            << std::endl;
  if (result.interrupted_by != 0) return 128 + result.interrupted_by;
  return result.failed.empty() ? 0 : 1;
}

absl::StatusOr<int> Study() {
  const std::string from = absl::GetFlag(FLAGS_from);
  if (!from.empty()) {
    if (absl::GetFlag(FLAGS_warmup_steps) < 0) {
      return absl::InvalidArgumentError("--warmup_steps: expected 0 or more");
    }
    const auto runs = LoadStudyFolder(UserPath(from));
    if (!runs.ok()) return runs.status();
    PrintReport(*runs);
    return 0;
  }
  const HostInfo host = CollectHostInfo();
  const absl::StatusOr<StudyConfig> config = ConfigFromFlags(host);
  if (!config.ok()) return config.status();
  const absl::StatusOr<StudyRunnerConfig> runner = RunnerFromFlags(*config);
  if (!runner.ok()) return runner.status();
  const StudyPlan plan = PlanStudy(*config);
  if (plan.runs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to run: ", absl::StrJoin(plan.not_run, "; ")));
  }
  if (absl::GetFlag(FLAGS_dry_run)) {
    PrintCommands(*config, plan, *runner);
    PrintNotRun(plan);
    return 0;
  }
  absl::Status prepared = PrepareStudyFolder(runner->output_dir);
  if (!prepared.ok()) return prepared;
  PrintHeading(*config, plan.runs.size(), host, runner->output_dir);
  const HeldSignals held;
  const StudyResult result = RunStudy(*config, plan.runs, *runner, std::cout);
  return PrintResult(result, plan, runner->output_dir);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(rankwise::kUsage);
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::StrContains(file, "analysis/study/");
  };
  absl::SetFlagsUsageConfig(usage);
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  if (arguments.size() > 1) {
    std::fprintf(stderr,
                 "study: unexpected argument \"%s\"; all options are "
                 "flags, as in --world_sizes=1,2\n",
                 arguments[1]);
    return 2;
  }
  const absl::StatusOr<int> exit_code = rankwise::Study();
  if (exit_code.ok()) return *exit_code;
  std::fprintf(stderr, "study: %s\n",
               std::string(exit_code.status().message()).c_str());
  return 2;
}
