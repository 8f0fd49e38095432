// The scaling study: trains at several world sizes, and says how well that
// scales. `./bazelw run //:study -- --help`; docs/metrics.md for the figures.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/program.h"
#include "analysis/study/command_line.h"
#include "analysis/study/config_file.h"
#include "analysis/study/fixed_memory.h"
#include "analysis/study/folder_lock.h"
#include "analysis/study/run_times.h"
#include "analysis/study/study_answer.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_flags.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_output.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_run.h"
#include "analysis/study/study_runner.h"
#include "analysis/study/subprocess.h"
#include "records/host.h"
#include "records/replace_file.h"
#include "records/user_path.h"

namespace rankwise {
namespace {

constexpr char kUsage[] =
    "Trains at several world sizes and says how well that scales.\n"
    "  ./bazelw run //:study                           1 and 2 ranks\n"
    "  ./bazelw run //:study -- --dry_run              what it would run\n"
    "  ./bazelw run //:study -- --world_sizes=1,2,4\n"
    "  ./bazelw run //:study -- --config=FILE          flags from a file\n"
    "  ./bazelw run //:study -- --output_dir=DIR --resume  go on after Ctrl-C\n"
    "  ./bazelw run //:study -- --from=DIR             the answer once more";

// A study that is described, and may begin.
struct Study {
  HostInfo host;
  StudyConfig config;
  StudyRunnerConfig runner;
  ConfigFile description;
};

// Prints the answer and writes the report; false where that failed.
bool Answer(std::vector<RunTrace> runs, const std::string& dir) {
  StudyAnswerConfig config;
  config.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  config.oversubscribe = absl::GetFlag(FLAGS_oversubscribe);
  config.force = absl::GetFlag(FLAGS_force);
  config.command =
      absl::StrCat("./bazelw run //:study -- --from=", ShellWord(dir));
  absl::StatusOr<std::string> plotly = "";
  if (absl::GetFlag(FLAGS_report)) {
    plotly = PlotlyFromFlags();
    if (plotly.ok()) config.report_path = dir + "/report.html";
    config.plotly_js = plotly.value_or("");
  }
  absl::Status status = GiveAnswer(std::move(runs), config, std::cout);
  status.Update(plotly.status());
  if (!status.ok()) {
    std::cout << "No report: " << status.message() << "\n";
  } else if (!config.report_path.empty()) {
    std::cout << "Report: " << config.report_path << "\n";
  }
  return status.ok();
}

absl::StatusOr<int> ReadAgain(const std::string& dir) {
  if (absl::GetFlag(FLAGS_warmup_steps) < 0) {
    return absl::InvalidArgumentError("--warmup_steps: expected 0 or more");
  }
  auto runs = LoadStudyFolder(dir);
  if (!runs.ok()) return runs.status();
  return Answer(*std::move(runs), dir) ? 0 : 1;
}

absl::StatusOr<Study> DescribedStudy() {
  Study study;
  study.host = CollectHostInfo();
  auto config = ConfigFromFlags(study.host);
  if (!config.ok()) return config.status();
  study.config = *std::move(config);
  auto runner = RunnerFromFlags(study.config);
  if (!runner.ok()) return runner.status();
  study.runner = *std::move(runner);
  study.description = DescribeStudy(study.config, study.host);
  absl::Status writable = CheckWritable(study.description);
  if (!writable.ok()) return writable;
  return study;
}

absl::Status CheckResumed(const Study& study, const CommandLine& line) {
  if (!absl::GetFlag(FLAGS_resume)) return absl::OkStatus();
  return CheckSameStudy(*line.folder, study.description,
                        absl::GetFlag(FLAGS_force));
}

int64_t CountRecorded(const StudyPlan& plan, const std::string& dir) {
  return std::count_if(
      plan.runs.begin(), plan.runs.end(), [&dir](const PlannedRun& run) {
        std::error_code error;
        return std::filesystem::exists(PathsOfRun(dir, run).record, error);
      });
}

int DryRun(const Study& study, const StudyPlan& plan) {
  const RunTimes times =
      RunTimes::Load(UserPath("results"), study.runner.output_dir,
                     study.description, StudyKeys());
  std::cout << DryRunText(study.config, plan, FixedMemoryRuns(study.config),
                          times);
  if (absl::GetFlag(FLAGS_resume)) {
    std::cout << CountRecorded(plan, study.runner.output_dir) << " of "
              << plan.runs.size() << " runs are complete already.\n";
  }
  if (absl::GetFlag(FLAGS_verbose)) {
    std::cout << "\n" << CommandsText(study.config, plan, study.runner);
  }
  return 0;
}

// The folder with study.json in it, which is this process's while the result
// lives.
absl::StatusOr<FolderLock> PrepareFolder(const Study& study) {
  const std::string& dir = study.runner.output_dir;
  const bool resume = absl::GetFlag(FLAGS_resume);
  absl::Status prepared =
      PrepareStudyFolder(dir, resume ? FolderUse::kResume : FolderUse::kNew);
  if (!prepared.ok()) return prepared;
  absl::StatusOr<FolderLock> lock = FolderLock::Take(dir);
  if (!lock.ok() || resume) return lock;
  absl::Status written = ReplaceFile(
      StudyFilePath(dir), ConfigToJson(study.description, StudyKeys()));
  if (!written.ok()) return written;
  return lock;
}

void SayHowToGoOn(const std::string& dir) {
  std::cout << "Go on with: ./bazelw run //:study -- --output_dir="
            << ShellWord(dir) << " --resume\n";
}

// The exit code of a study that was run.
int Conclude(StudyResult result, const StudyPlan& plan,
             const std::string& warnings, const std::string& dir) {
  const size_t complete = result.runs.size();
  std::cout << "\n";
  const bool answered = complete == 0 || Answer(std::move(result.runs), dir);
  std::cout << NotRunText(plan) << warnings;
  for (const std::string& failed : result.failed) {
    std::cout << "Failed: " << failed << "\n";
  }
  if (result.interrupted_by != 0) {
    std::cout << "Interrupted: the running trainer was ended; " << complete
              << " of " << plan.runs.size() << " runs are complete and kept.\n";
  }
  if (complete < plan.runs.size()) SayHowToGoOn(dir);
  std::cout << "Records: " << dir
            << "\nThis answer again: --from=" << ShellWord(dir) << std::endl;
  if (result.interrupted_by != 0) return 128 + result.interrupted_by;
  return result.failed.empty() && answered ? 0 : 1;
}

absl::StatusOr<int> RunAll(Study study) {
  const std::string& dir = study.runner.output_dir;
  const absl::StatusOr<FolderLock> lock = PrepareFolder(study);
  if (!lock.ok()) return lock.status();
  const HeldSignals held;
  const auto found = FindFixedMemoryRuns(study.config, study.runner, std::cout);
  if (!found.ok()) return found.status();
  if (found->interrupted_by != 0) {
    std::cout << "Interrupted while looking for batches.\n";
    SayHowToGoOn(dir);
    return 128 + found->interrupted_by;
  }
  for (const PlannedRun& run : found->runs) {
    study.config.largest_global_batch =
        std::max(study.config.largest_global_batch, run.GlobalBatch());
  }
  const StudyPlan plan = PlanStudy(study.config, found->runs);
  std::cout << StudyHeading(study.config, plan, study.host, dir) << std::flush;
  StudyResult result =
      RunStudy(study.config, plan.runs, study.runner, std::cout);
  const std::string warnings = absl::StrCat(
      OverLimitText(study.config, found->runs, plan.runs, result.runs, dir),
      DifferentCodeText(result.runs));
  return Conclude(std::move(result), plan, warnings, dir);
}

absl::StatusOr<int> Main(const CommandLine& line) {
  const std::string from = absl::GetFlag(FLAGS_from);
  if (!from.empty()) return ReadAgain(UserPath(from));
  absl::StatusOr<Study> study = DescribedStudy();
  if (!study.ok()) return study.status();
  const StudyPlan plan = PlanStudy(study->config);
  const bool trains =
      std::any_of(plan.runs.begin(), plan.runs.end(),
                  [](const PlannedRun& run) { return run.IsTraining(); });
  if (!trains && FixedMemoryRuns(study->config).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to run: ", absl::StrJoin(plan.not_run, "; ")));
  }
  if (absl::Status same = CheckResumed(*study, line); !same.ok()) return same;
  if (absl::GetFlag(FLAGS_dry_run)) return DryRun(*study, plan);
  return RunAll(*std::move(study));
}

absl::StatusOr<int> ParseAndRun(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseStudyCommandLine(argc, argv);
  if (!line.ok()) return line.status();
  const absl::Status no_rest =
      RefuseArguments(line->positional, "--world_sizes=1,2");
  if (!no_rest.ok()) return no_rest;
  return Main(*line);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/study/");
  const absl::StatusOr<int> exit_code = rankwise::ParseAndRun(argc, argv);
  if (exit_code.ok()) return *exit_code;
  return rankwise::Complain("study", exit_code.status(), rankwise::kBadUsage);
}
