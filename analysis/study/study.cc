// The scaling study: trains at several world sizes and measures how well that
// scales. `./bazelw run //:study -- --help`; docs/metrics.md explains the
// figures.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/answer/answer.h"
#include "analysis/report/page.h"
#include "analysis/report/report.h"
#include "analysis/study/fixed_memory.h"
#include "analysis/study/programs.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_output.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_run.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(
    std::string, output_dir, "",
    "folder for the records; if empty, results/TIME, with the time in UTC");
ABSL_FLAG(bool, resume, false,
          "continue the study in --output_dir: only missing runs");
ABSL_FLAG(std::string, from, "",
          "run nothing: analyze the records in this folder again");
ABSL_FLAG(bool, report, true, "write report.html into the folder");
ABSL_FLAG(
    double, target_loss, 0,
    "training loss: report when each configuration reached it; if 0, none");
ABSL_FLAG(std::string, plotly_js, "",
          "path of the plotly.min.js to embed; if empty, this build's");
ABSL_FLAG(bool, force, false,
          "compare cells in spite of errors, with a mark; with --resume, "
          "continue with another version of the code or machine");
ABSL_FLAG(absl::Duration, run_timeout, absl::Minutes(10),
          "time limit of a run");
ABSL_FLAG(bool, dry_run, false,
          "run nothing: list the runs and their estimated duration");
ABSL_FLAG(bool, verbose, false, "with --dry_run: also print the commands");
ABSL_FLAG(std::string, trainer_dir, "",
          "folder of the trainers' binaries; if empty, this build's");

namespace rankwise {
namespace {

constexpr char kProgram[] = "study";
constexpr char kUsage[] =
    "Trains at several world sizes and measures how well that scales.\n"
    "  ./bazelw run //:study                           1 and 2 ranks\n"
    "  ./bazelw run //:study -- --dry_run              list the runs\n"
    "  ./bazelw run //:study -- --world_sizes=1,2,4\n"
    "  ./bazelw run //:study -- --hosts=a,b --ranks_per_host=2\n"
    "  ./bazelw run //:study -- --flagfile=FILE        flags from a file\n"
    "  ./bazelw run //:study -- --output_dir=DIR --resume  continue after "
    "Ctrl-C\n"
    "  ./bazelw run //:study -- --from=DIR             the results again";

// Reads study.flags of --output_dir with --resume, and of --from if it has one.
absl::StatusOr<std::optional<StudyDescription>> ReadFolder() {
  const std::string from = absl::GetFlag(FLAGS_from);
  const bool resume = absl::GetFlag(FLAGS_resume);
  std::string dir = resume ? absl::GetFlag(FLAGS_output_dir) : from;
  if (resume && !from.empty()) {
    return absl::InvalidArgumentError(
        "--from runs nothing, and --resume does: pass one of the two");
  }
  if (resume && dir.empty()) {
    return absl::InvalidArgumentError(
        "--resume: pass --output_dir too, the folder of the study to go on "
        "with");
  }
  if (dir.empty()) return std::nullopt;
  dir = UserPath(dir);
  std::error_code error;
  if (std::filesystem::exists(StudyFilePath(dir), error)) {
    return ReadFlagfile(StudyFilePath(dir));
  }
  if (!resume) return std::nullopt;  // a version that wrote no study.flags
  return absl::NotFoundError(absl::StrCat(
      "--resume: ", dir,
      " holds no study.flags: no study was begun there, or an earlier version "
      "did; choose another folder, or read it by --from"));
}

// Sets all flags from argv, else from the folder's study.flags, else to their
// defaults. Returns the content of study.flags. Exits as ParseFlags does if
// argv is wrong; fails if the file is.
absl::StatusOr<std::optional<StudyDescription>> ParseCommandLine(int argc,
                                                                 char** argv) {
  RETURN_IF_ERROR(RefuseArguments(ParseFlags(argc, argv), "--world_sizes=1,2"));
  ASSIGN_OR_RETURN(const auto folder, ReadFolder());
  if (!folder.has_value()) return folder;
  RETURN_IF_ERROR(SetFlags(*folder));
  ParseFlags(argc, argv);  // again, so that argv takes precedence
  return folder;
}

absl::Status FindPrograms(const StudyConfig& study) {
  std::vector<std::string> programs = study.trainers;
  const bool only_single = programs == std::vector<std::string>{"single"};
  if (study.comm_bench && !only_single && LargestWorldSize(study) > 1) {
    programs.push_back("comm_bench");
  }
  for (const std::string& program : programs) {
    RETURN_IF_ERROR(ProgramPath(study.trainer_dir, program).status());
  }
  return absl::OkStatus();
}

// Sets the folders of the study and the timeout of its runs.
absl::Status SetPlaces(StudyConfig& study) {
  study.run_timeout = absl::GetFlag(FLAGS_run_timeout);
  if (study.run_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "--run_timeout: expected a time above 0, such as 10m");
  }
  if (!std::isfinite(absl::GetFlag(FLAGS_target_loss))) {
    return absl::InvalidArgumentError(
        "--target_loss: expected a finite loss, or 0 for none");
  }
  study.trainer_dir = UserPath(absl::GetFlag(FLAGS_trainer_dir));
  if (study.trainer_dir.empty()) {
    ASSIGN_OR_RETURN(study.trainer_dir, FindTrainerDir(OwnPath()));
  }
  study.output_dir = UserPath(absl::GetFlag(FLAGS_output_dir));
  if (study.output_dir.empty()) {
    study.output_dir = UserPath(absl::FormatTime(
        "results/%Y%m%d-%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
  }
  return FindPrograms(study);
}

// Returns "Scaling study, 2026-01-31 (UTC)": run ids begin with the day in UTC.
std::string Title(const std::vector<RunTrace>& runs) {
  std::string first;
  for (const RunTrace& run : runs) {
    const std::string& id = run.ranks[0].run.run_id;
    if (first.empty() || id < first) first = id;
  }
  if (first.size() < 8) return "Scaling study";
  return absl::StrCat("Scaling study, ", first.substr(0, 4), "-",
                      first.substr(4, 2), "-", first.substr(6, 2), " (UTC)");
}

absl::Status Report(const Answer& answer, const std::string& title,
                    const std::string& dir) {
  if (!absl::GetFlag(FLAGS_report)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string plotly,
                   FindPlotly(UserPath(absl::GetFlag(FLAGS_plotly_js)),
                              OwnPath(), std::getenv("RUNFILES_DIR")));
  const std::string path = dir + "/report.html";
  RETURN_IF_ERROR(WriteReport(
      answer,
      {title, plotly,
       absl::StrCat("./bazelw run //:study -- --from=", ShellWord(dir))},
      path));
  std::cout << "Report: " << path << "\n";
  return absl::OkStatus();
}

// Returns --batch_size of the study in `dir`; 0 if its study.flags lack it.
int64_t BaseBatch(const std::string& dir) {
  int64_t batch = 0;
  const auto study = ReadFlagfile(StudyFilePath(dir));
  if (!study.ok()) return 0;
  const auto flag = study->flags.find("batch_size");
  const bool is_number = flag != study->flags.end() &&
                         absl::SimpleAtoi(flag->second, &batch) && batch > 0;
  return is_number ? batch : 0;
}

// Prints the answer, writes the report and returns the exit code: kInconclusive
// if nothing could be measured. Depends only on the runs, so that reading the
// records back from disk gives the same output.
int GiveAnswer(std::vector<RunTrace> runs, const std::string& dir) {
  AnswerConfig config;
  config.base_batch = BaseBatch(dir);
  config.throughput.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  config.target_loss = absl::GetFlag(FLAGS_target_loss);
  config.comparison.force = absl::GetFlag(FLAGS_force);
  config.comparison.allow_oversubscribed = absl::GetFlag(FLAGS_oversubscribe);
  const std::string title = Title(runs);
  const auto answer = Analyze(std::move(runs), config);
  std::cout << AnswerText(*answer) << std::flush;
  if (answer->cells.empty() && answer->calls.empty()) {
    std::cout << "No report: nothing in the records could be measured\n";
    return kInconclusive;
  }
  const absl::Status status = Report(*answer, title, dir);
  if (status.ok()) return 0;
  std::cout << "No report: " << status.message() << "\n";
  return kFailed;
}

absl::StatusOr<int> ReadAgain(const std::string& dir) {
  if (absl::GetFlag(FLAGS_warmup_steps) < 0) {
    return absl::InvalidArgumentError("--warmup_steps: expected 0 or more");
  }
  ASSIGN_OR_RETURN(auto runs, LoadStudyFolder(dir));
  return GiveAnswer(std::move(runs), dir);
}

// Returns the study described by the flags. Fails if study.flags could not
// store it.
absl::StatusOr<StudyConfig> DescribedStudy() {
  ASSIGN_OR_RETURN(StudyConfig study, ConfigFromFlags());
  RETURN_IF_ERROR(SetPlaces(study));
  RETURN_IF_ERROR(FlagfileText(DescribeStudy(study)).status());
  return study;
}

RunTimes TimesOf(const StudyConfig& study) {
  return RunTimes(UserPath("results"), study.output_dir, DescribeStudy(study));
}

int DryRun(const StudyConfig& study, const StudyPlan& plan) {
  std::cout << DryRunText(study, plan, TimesOf(study));
  if (absl::GetFlag(FLAGS_resume)) {
    const auto is_finished = [&study](const PlannedRun& run) {
      return LoadFinishedRun(study, run).ok();
    };
    std::cout << absl::c_count_if(plan.runs, is_finished) << " of "
              << plan.runs.size() << " runs are complete already.\n";
  }
  if (absl::GetFlag(FLAGS_verbose)) {
    std::cout << "\n" << CommandsText(study, plan);
  }
  return 0;
}

// Prepares the folder and its study.flags; locked while the result lives.
absl::StatusOr<std::shared_ptr<void>> PrepareFolder(const StudyConfig& study) {
  const std::string& dir = study.output_dir;
  const bool resume = absl::GetFlag(FLAGS_resume);
  RETURN_IF_ERROR(
      PrepareStudyFolder(dir, resume ? FolderUse::kResume : FolderUse::kNew));
  ASSIGN_OR_RETURN(std::shared_ptr<void> lock, LockFolder(dir));
  if (resume) return lock;
  ASSIGN_OR_RETURN(const std::string text, FlagfileText(DescribeStudy(study)));
  RETURN_IF_ERROR(ReplaceFile(StudyFilePath(dir), text));
  return lock;
}

void PrintResumeCommand(const std::string& dir) {
  std::cout << "Go on with: ./bazelw run //:study -- --output_dir="
            << ShellWord(dir) << " --resume\n";
}

// Prints the results and returns the exit code of an executed study.
int Conclude(StudyResult result, const StudyPlan& plan,
             const std::string& warnings, const std::string& dir,
             int interrupted_by) {
  const size_t complete = result.runs.size();
  std::cout << "\n";
  const int exit_code =
      complete == 0 ? 0 : GiveAnswer(std::move(result.runs), dir);
  std::cout << NotRunText(plan) << warnings;
  for (const std::string& failed : result.failed) {
    std::cout << "Failed: " << failed << "\n";
  }
  if (interrupted_by != 0) {
    std::cout << "Interrupted: the running trainer was ended; " << complete
              << " of " << plan.runs.size() << " runs are complete and kept.\n";
  }
  if (complete < plan.runs.size()) PrintResumeCommand(dir);
  std::cout << "Records: " << dir
            << "\nThis answer again: --from=" << ShellWord(dir) << std::endl;
  if (interrupted_by != 0) return 128 + interrupted_by;
  return result.failed.empty() ? exit_code : kFailed;
}

// Fails only before the first run; a failed run is an exit code.
absl::StatusOr<int> RunAll(StudyConfig study) {
  const std::string& dir = study.output_dir;
  ASSIGN_OR_RETURN(const auto lock, PrepareFolder(study));
  HeldSignals signals;
  const auto found = FindFixedMemoryRuns(study, signals);
  if (absl::IsCancelled(found.status())) {
    std::cout << "Interrupted while looking for batches.\n";
    PrintResumeCommand(dir);
    return 128 + signals.interrupted_by();
  }
  if (absl::IsOutOfRange(found.status())) {  // --memory_limit is too small
    return found.status();
  }
  if (!found.ok()) return Complain(kProgram, found.status(), kFailed);
  for (const PlannedRun& run : *found) {
    study.largest_global_batch =
        std::max(study.largest_global_batch, run.GlobalBatch());
  }
  const StudyPlan plan = PlanStudy(study, *found);
  std::cout << StudyHeading(study, plan) << std::flush;
  StudyResult result = RunStudy(study, plan.runs, TimesOf(study), signals);
  const std::string warnings = OverLimitText(study, *found, result.runs) +
                               DifferentCodeText(result.runs);
  return Conclude(std::move(result), plan, warnings, dir,
                  signals.interrupted_by());
}

absl::StatusOr<int> Main(int argc, char** argv) {
  ASSIGN_OR_RETURN(const auto folder, ParseCommandLine(argc, argv));
  const std::string from = UserPath(absl::GetFlag(FLAGS_from));
  if (!from.empty()) return ReadAgain(from);
  ASSIGN_OR_RETURN(StudyConfig study, DescribedStudy());
  const StudyPlan plan = PlanStudy(study);
  const bool trains = absl::c_any_of(
      plan.runs, [](const PlannedRun& run) { return run.IsTraining(); });
  if (!trains && plan.searched.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to run: ", absl::StrJoin(plan.not_run, "; ")));
  }
  if (absl::GetFlag(FLAGS_resume)) {
    RETURN_IF_ERROR(CheckSameStudy(*folder, DescribeStudy(study),
                                   absl::GetFlag(FLAGS_force)));
  }
  if (absl::GetFlag(FLAGS_dry_run)) return DryRun(study, plan);
  return RunAll(std::move(study));
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/study/");
  const absl::StatusOr<int> exit_code = rankwise::Main(argc, argv);
  if (exit_code.ok()) return *exit_code;
  return rankwise::Complain(rankwise::kProgram, exit_code.status(),
                            rankwise::kBadUsage);
}
