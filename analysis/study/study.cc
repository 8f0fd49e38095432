// The scaling study: trains at several world sizes, and says how well that
// scales. `bazel run //:study -- --help`; docs/metrics.md for the figures.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
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
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/scaling_report.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_runner.h"
#include "analysis/study/subprocess.h"
#include "analysis/study/trainer_path.h"
#include "records/host.h"

ABSL_FLAG(std::string, world_sizes, "1,2", "world sizes to run ddp at");
ABSL_FLAG(std::string, trainers, "single,ddp",
          "what to run; single is the base case of the others");
ABSL_FLAG(std::string, scaling, "strong,weak",
          "strong: the global batch is held equal; weak: the batch per rank");
ABSL_FLAG(int64_t, repetitions, 5, "runs of every configuration");
ABSL_FLAG(int64_t, batch_size, 64,
          "examples a step: of all ranks together under strong, of each rank "
          "under weak scaling");
ABSL_FLAG(int64_t, max_steps, 60, "steps of every run, warm-up included");
ABSL_FLAG(int64_t, warmup_steps, 10,
          "steps at the start of every run that are left out");
ABSL_FLAG(int64_t, train_size, 0,
          "training examples; 0: enough that no run needs a second epoch");
ABSL_FLAG(int64_t, threads, 0,
          "compute threads per rank, equal at all world sizes; 0: cores / the "
          "largest world size, at least 1");
ABSL_FLAG(bool, oversubscribe, false,
          "allow more ranks times threads than this machine has cores");
ABSL_FLAG(uint64_t, seed, 0, "of the trainers, and of the order of the runs");
ABSL_FLAG(std::string, model, "", "as the trainers take it; empty: theirs");
ABSL_FLAG(std::string, dataset, "",
          "synthetic or cifar10; empty: synthetic, which needs no files");
ABSL_FLAG(std::string, data_dir, "", "folder of the dataset's files");
ABSL_FLAG(std::string, device, "", "as the trainers take it; empty: auto");
ABSL_FLAG(std::string, backend, "", "as the trainers take it; empty: auto");
ABSL_FLAG(std::string, precision, "", "fp32 or bf16; empty: fp32");
ABSL_FLAG(std::string, trainer_flags, "",
          "more flags for every trainer, with spaces between: '--lr=0.01'");
ABSL_FLAG(std::string, output_dir, "",
          "folder for the records; empty: results/TIME");
ABSL_FLAG(std::string, from, "",
          "run nothing: print the table of the records in this folder");
ABSL_FLAG(absl::Duration, run_timeout, absl::Minutes(10),
          "end a run that takes longer");
ABSL_FLAG(bool, dry_run, false, "print the commands of all runs, run nothing");
ABSL_FLAG(std::string, trainer_dir, "",
          "folder of the binaries single and ddp; empty: this build's");

namespace rankwise {
namespace {

constexpr char kUsage[] =
    "Trains at several world sizes and prints how well that scales.\n"
    "  bazel run //:study                        1 and 2 ranks, 2 minutes\n"
    "  bazel run //:study -- --world_sizes=1,2,4\n"
    "  bazel run //:study -- --from=results/TIME  the table once more";

// `bazel run` starts in the runfiles; users mean the folder they typed in.
std::string UserPath(const std::string& path) {
  const char* typed_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base = typed_in != nullptr
                                         ? std::filesystem::path(typed_in)
                                         : std::filesystem::current_path();
  return (base / path).lexically_normal().string();
}

// The flags that are handed on as they are, where they are set.
std::vector<std::string> TrainerFlags() {
  std::vector<std::string> flags = absl::StrSplit(
      absl::GetFlag(FLAGS_trainer_flags), ' ', absl::SkipEmpty());
  const auto hand_on = [&flags](absl::string_view name,
                                const std::string& value) {
    if (!value.empty()) flags.push_back(absl::StrCat("--", name, "=", value));
  };
  hand_on("model", absl::GetFlag(FLAGS_model));
  hand_on("dataset", absl::GetFlag(FLAGS_dataset));
  hand_on("device", absl::GetFlag(FLAGS_device));
  hand_on("backend", absl::GetFlag(FLAGS_backend));
  hand_on("precision", absl::GetFlag(FLAGS_precision));
  const std::string data_dir = absl::GetFlag(FLAGS_data_dir);
  if (!data_dir.empty()) hand_on("data_dir", UserPath(data_dir));
  return flags;
}

absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host) {
  StudyConfig config;
  const auto trainers = ParseTrainers(absl::GetFlag(FLAGS_trainers));
  if (!trainers.ok()) return trainers.status();
  const auto world_sizes = ParseWorldSizes(absl::GetFlag(FLAGS_world_sizes));
  if (!world_sizes.ok()) return world_sizes.status();
  const auto scalings = ParseScalings(absl::GetFlag(FLAGS_scaling));
  if (!scalings.ok()) return scalings.status();
  config.trainers = *trainers;
  config.world_sizes = *world_sizes;
  config.scalings = *scalings;
  config.repetitions = absl::GetFlag(FLAGS_repetitions);
  config.batch_size = absl::GetFlag(FLAGS_batch_size);
  config.max_steps = absl::GetFlag(FLAGS_max_steps);
  config.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  config.train_size = absl::GetFlag(FLAGS_train_size);
  config.threads = absl::GetFlag(FLAGS_threads);
  config.cores = host.cores;
  config.oversubscribe = absl::GetFlag(FLAGS_oversubscribe);
  config.seed = absl::GetFlag(FLAGS_seed);
  config.trainer_flags = TrainerFlags();
  if (absl::Status status = CheckStudyConfig(config); !status.ok()) {
    return status;
  }
  return config;
}

absl::StatusOr<StudyRunnerConfig> RunnerFromFlags(const StudyConfig& study) {
  StudyRunnerConfig runner;
  runner.run_timeout = absl::GetFlag(FLAGS_run_timeout);
  if (runner.run_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "--run_timeout: expected a time above 0, such as 10m");
  }
  runner.on_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string trainer_dir = absl::GetFlag(FLAGS_trainer_dir);
  if (!trainer_dir.empty()) {
    runner.trainer_dir = UserPath(trainer_dir);
  } else {
    absl::StatusOr<std::string> found = FindTrainerDir(
        std::filesystem::read_symlink("/proc/self/exe").string());
    if (!found.ok()) return found.status();
    runner.trainer_dir = *std::move(found);
  }
  for (const std::string& trainer : study.trainers) {
    const auto path = TrainerPath(runner.trainer_dir, trainer);
    if (!path.ok()) return path.status();
  }
  std::string output_dir = absl::GetFlag(FLAGS_output_dir);
  if (output_dir.empty()) {
    output_dir = absl::FormatTime("results/%Y%m%d-%H%M%S", absl::Now(),
                                  absl::LocalTimeZone());
  }
  runner.output_dir = UserPath(output_dir);
  return runner;
}

void PrintReport(const std::vector<RunTrace>& runs) {
  ScalingReportConfig config;
  config.throughput.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  std::cout << ScalingReport(runs, config) << std::flush;
}

void PrintCommands(const StudyConfig& config,
                   const std::vector<PlannedRun>& plan,
                   const StudyRunnerConfig& runner) {
  for (const PlannedRun& run : plan) {
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
  std::cout << "Study of " << absl::StrJoin(config.trainers, " and ")
            << " at world sizes " << absl::StrJoin(config.world_sizes, ", ")
            << ": " << runs << " runs of " << config.max_steps << " steps, "
            << threads << (threads == 1 ? " thread" : " threads")
            << " per rank at every size, on " << host.cores << " cores of "
            << (host.cpu_model.empty() ? "a CPU" : host.cpu_model)
            << ".\nRecords go to " << output_dir << ".\n"
            << std::flush;
}

// The exit code of a study that was run.
int PrintResult(const StudyResult& result, size_t planned,
                const std::string& output_dir) {
  std::cout << "\n";
  if (!result.runs.empty()) PrintReport(result.runs);
  for (const std::string& failed : result.failed) {
    std::cout << "Failed: " << failed << "\n";
  }
  if (result.interrupted_by != 0) {
    std::cout << "Interrupted: the running trainer was ended; "
              << result.runs.size() << " of " << planned
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
  const std::vector<PlannedRun> plan = PlanStudy(*config);
  if (absl::GetFlag(FLAGS_dry_run)) {
    PrintCommands(*config, plan, *runner);
    return 0;
  }
  absl::Status prepared = PrepareStudyFolder(runner->output_dir);
  if (!prepared.ok()) return prepared;
  PrintHeading(*config, plan.size(), host, runner->output_dir);
  const HeldSignals held;
  const StudyResult result = RunStudy(*config, plan, *runner, std::cout);
  return PrintResult(result, plan.size(), runner->output_dir);
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
