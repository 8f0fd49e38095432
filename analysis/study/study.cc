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
#include "analysis/answer/answer.h"
#include "analysis/answer/answer_text.h"
#include "analysis/report/report.h"
#include "analysis/study/fixed_memory.h"
#include "analysis/study/programs.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_description.h"
#include "analysis/study/study_flags.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_output.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_run.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr char kProgram[] = "study";
constexpr char kUsage[] =
    "Trains at several world sizes and says how well that scales.\n"
    "  ./bazelw run //:study                           1 and 2 ranks\n"
    "  ./bazelw run //:study -- --dry_run              what it would run\n"
    "  ./bazelw run //:study -- --world_sizes=1,2,4\n"
    "  ./bazelw run //:study -- --flagfile=FILE        flags from a file\n"
    "  ./bazelw run //:study -- --output_dir=DIR --resume  go on after Ctrl-C\n"
    "  ./bazelw run //:study -- --from=DIR             the answer once more";

// A study that is described, and may begin.
struct Study {
  HostInfo host;
  StudyConfig config;
  StudyRunnerConfig runner;
  StudyDescription description;
};

// "Scaling study, 2026-01-31": run ids begin with the day.
std::string Title(const std::vector<RunTrace>& runs) {
  std::string first;
  for (const RunTrace& run : runs) {
    const std::string& id = run.ranks[0].run.run_id;
    if (first.empty() || id < first) first = id;
  }
  if (first.size() < 8) return "Scaling study";
  return absl::StrCat("Scaling study, ", first.substr(0, 4), "-",
                      first.substr(4, 2), "-", first.substr(6, 2));
}

absl::Status Report(const Answer& answer, const std::string& title,
                    const std::string& dir) {
  if (answer.cells.empty() && answer.calls.empty()) {
    return absl::FailedPreconditionError(
        "nothing in the records could be measured");
  }
  if (!absl::GetFlag(FLAGS_report)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string plotly, PlotlyFromFlags());
  const std::string path = dir + "/report.html";
  RETURN_IF_ERROR(WriteReport(
      answer,
      {title, plotly,
       absl::StrCat("./bazelw run //:study -- --from=", ShellWord(dir))},
      path));
  std::cout << "Report: " << path << "\n";
  return absl::OkStatus();
}

// Prints the answer and writes the report; false where that failed. Both depend
// on the runs alone, so that records read back from disk give the same.
bool GiveAnswer(std::vector<RunTrace> runs, const std::string& dir) {
  AnswerConfig config;
  config.throughput.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  config.force = absl::GetFlag(FLAGS_force);
  config.allow_oversubscribed = absl::GetFlag(FLAGS_oversubscribe);
  const std::string title = Title(runs);
  const auto answer = Analyze(std::move(runs), config);
  std::cout << AnswerText(*answer) << std::flush;
  const absl::Status status = Report(*answer, title, dir);
  if (!status.ok()) std::cout << "No report: " << status.message() << "\n";
  return status.ok();
}

absl::StatusOr<int> ReadAgain(const std::string& dir) {
  if (absl::GetFlag(FLAGS_warmup_steps) < 0) {
    return absl::InvalidArgumentError("--warmup_steps: expected 0 or more");
  }
  ASSIGN_OR_RETURN(auto runs, LoadStudyFolder(dir));
  return GiveAnswer(std::move(runs), dir) ? 0 : kFailed;
}

absl::StatusOr<Study> DescribedStudy() {
  Study study;
  study.host = CollectHostInfo();
  ASSIGN_OR_RETURN(study.config, ConfigFromFlags(study.host));
  ASSIGN_OR_RETURN(study.runner, RunnerFromFlags(study.config));
  study.description = DescribeStudy(study.config, study.host);
  RETURN_IF_ERROR(FlagfileText(study.description).status());
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
  const RunTimes times = RunTimes::Load(
      UserPath("results"), study.runner.output_dir, study.description);
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

// The folder with study.flags in it, which is this process's while the result
// lives.
absl::StatusOr<FolderLock> PrepareFolder(const Study& study) {
  const std::string& dir = study.runner.output_dir;
  const bool resume = absl::GetFlag(FLAGS_resume);
  RETURN_IF_ERROR(
      PrepareStudyFolder(dir, resume ? FolderUse::kResume : FolderUse::kNew));
  ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Take(dir));
  if (resume) return lock;
  ASSIGN_OR_RETURN(const std::string text, FlagfileText(study.description));
  RETURN_IF_ERROR(ReplaceFile(StudyFilePath(dir), text));
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
  const bool answered =
      complete == 0 || GiveAnswer(std::move(result.runs), dir);
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
  return result.failed.empty() && answered ? 0 : kFailed;
}

// Fails before it has run anything; a failed run is an exit code.
absl::StatusOr<int> RunAll(Study study) {
  const std::string& dir = study.runner.output_dir;
  ASSIGN_OR_RETURN(const FolderLock lock, PrepareFolder(study));
  const HeldSignals held;
  const auto found = FindFixedMemoryRuns(study.config, study.runner, std::cout);
  if (!found.ok() && !absl::IsOutOfRange(found.status())) {
    return Complain(kProgram, found.status(), kFailed);
  }
  RETURN_IF_ERROR(found.status());  // --memory_limit is too small
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
  ASSIGN_OR_RETURN(Study study, DescribedStudy());
  const StudyPlan plan = PlanStudy(study.config);
  const bool trains =
      std::any_of(plan.runs.begin(), plan.runs.end(),
                  [](const PlannedRun& run) { return run.IsTraining(); });
  if (!trains && FixedMemoryRuns(study.config).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to run: ", absl::StrJoin(plan.not_run, "; ")));
  }
  RETURN_IF_ERROR(CheckResumed(study, line));
  if (absl::GetFlag(FLAGS_dry_run)) return DryRun(study, plan);
  return RunAll(std::move(study));
}

absl::StatusOr<int> ParseAndRun(int argc, char** argv) {
  ASSIGN_OR_RETURN(const CommandLine line, ParseStudyCommandLine(argc, argv));
  RETURN_IF_ERROR(RefuseArguments(line.positional, "--world_sizes=1,2"));
  return Main(line);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/study/");
  const absl::StatusOr<int> exit_code = rankwise::ParseAndRun(argc, argv);
  if (exit_code.ok()) return *exit_code;
  return rankwise::Complain(rankwise::kProgram, exit_code.status(),
                            rankwise::kBadUsage);
}
