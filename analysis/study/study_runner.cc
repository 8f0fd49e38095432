#include "analysis/study/study_runner.h"

#include <filesystem>
#include <map>
#include <ostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/subprocess.h"
#include "analysis/study/trainer_path.h"
#include "analysis/throughput.h"

namespace rankwise {
namespace {

constexpr int kShownLogLines = 20;

std::string RoundedDuration(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

// One line a run: "[ 3/20] ddp x2, batch 32 per rank, run 1: 1612 images/s,
// 5.2 s; about 1m20s left".
class Progress {
 public:
  Progress(size_t total, bool on_terminal, std::ostream& out)
      : total_(total), on_terminal_(on_terminal), out_(out) {}

  void Begin(const PlannedRun& run) {
    heading_ = absl::StrFormat("[%2d/%d] %s, run %d: ", ++count_, total_,
                               run.Name(), run.repetition);
    if (on_terminal_) out_ << heading_ << "..." << std::flush;
  }
  void End(absl::string_view outcome, bool goes_on = true) {
    if (on_terminal_) out_ << "\r\033[K";
    out_ << heading_ << outcome;
    const size_t left = total_ - count_;
    if (left > 0 && goes_on) {
      const absl::Duration a_run = (absl::Now() - start_) / count_;
      out_ << "; about " << RoundedDuration(a_run * left) << " left";
    }
    out_ << std::endl;
  }

 private:
  const size_t total_;
  const bool on_terminal_;
  std::ostream& out_;
  const absl::Time start_ = absl::Now();
  size_t count_ = 0;
  std::string heading_;
};

// The one run that the file of a finished trainer must hold.
absl::StatusOr<RunTrace> LoadRun(const std::string& path,
                                 const PlannedRun& planned) {
  absl::StatusOr<std::vector<RunTrace>> runs = LoadRuns(path);
  if (!runs.ok()) return runs.status();
  if (runs->size() != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": holds ", runs->size(), " runs instead of one"));
  }
  const int64_t world_size = runs->front().ranks[0].run.world_size;
  if (world_size != planned.world_size) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the run had ", world_size, " ranks instead of ",
                     planned.world_size));
  }
  return std::move(runs->front());
}

class StudyRunner {
 public:
  StudyRunner(const StudyConfig& config, const StudyRunnerConfig& runner,
              size_t total, std::ostream& out)
      : config_(config),
        runner_(runner),
        progress_(total, runner.on_terminal, out),
        out_(out) {}

  // False: the study was interrupted.
  bool RunOne(const PlannedRun& run) {
    const std::string record_path =
        absl::StrCat(runner_.output_dir, "/", run.FileStem(), ".jsonl");
    const std::string log_path =
        absl::StrCat(runner_.output_dir, "/logs/", run.FileStem(), ".log");
    progress_.Begin(run);
    Tally& tally = tallies_[run.Name()];
    if (tally.failed > 0 && tally.done == 0) {
      progress_.End("skipped, as this configuration has only failed so far");
      return true;
    }
    const absl::Status status = Try(run, record_path, log_path);
    ++(status.ok() ? tally.done : tally.failed);
    if (status.ok()) return true;
    std::error_code ignored;
    std::filesystem::rename(record_path, record_path + ".incomplete", ignored);
    if (result_.interrupted_by != 0) {
      progress_.End("interrupted", /*goes_on=*/false);
      return false;
    }
    progress_.End("failed");
    Report(run, status, log_path);
    return true;
  }

  StudyResult Take() { return std::move(result_); }

 private:
  struct Tally {
    int done = 0;
    int failed = 0;
  };

  absl::Status Try(const PlannedRun& planned, const std::string& record_path,
                   const std::string& log_path) {
    const absl::StatusOr<std::string> trainer =
        TrainerPath(runner_.trainer_dir, planned.trainer);
    if (!trainer.ok()) return trainer.status();
    Command command;
    command.arguments = TrainerArguments(config_, planned, record_path);
    command.arguments.insert(command.arguments.begin(), *trainer);
    command.output_path = log_path;
    command.timeout = runner_.run_timeout;
    const absl::StatusOr<CommandEnd> end = RunCommand(command);
    if (!end.ok()) return end.status();
    result_.interrupted_by = end->interrupted_by;
    if (!end->ok()) return absl::UnknownError(end->Describe());
    absl::StatusOr<RunTrace> run = LoadRun(record_path, planned);
    if (!run.ok()) return run.status();
    const absl::StatusOr<Throughput> throughput =
        MeasureThroughput(*run, {config_.warmup_steps});
    if (!throughput.ok()) return throughput.status();
    progress_.End(absl::StrFormat("%.0f images/s, %.1f s",
                                  throughput->images_per_second,
                                  absl::ToDoubleSeconds(end->elapsed)));
    result_.runs.push_back(*std::move(run));
    return absl::OkStatus();
  }

  void Report(const PlannedRun& run, const absl::Status& status,
              const std::string& log_path) {
    result_.failed.push_back(absl::StrCat(run.Name(), ", run ", run.repetition,
                                          ": ", status.message()));
    out_ << "  " << status.message() << "\n";
    const std::string lines = LastLines(log_path, kShownLogLines);
    if (lines.empty()) return;
    out_ << "  its last lines (all of them in " << log_path << "):\n"
         << lines << std::endl;
  }

  const StudyConfig& config_;
  const StudyRunnerConfig& runner_;
  Progress progress_;
  std::ostream& out_;
  std::map<std::string, Tally> tallies_;  // by configuration
  StudyResult result_;
};

}  // namespace

StudyResult RunStudy(const StudyConfig& config,
                     const std::vector<PlannedRun>& plan,
                     const StudyRunnerConfig& runner, std::ostream& progress) {
  StudyRunner study(config, runner, plan.size(), progress);
  for (const PlannedRun& run : plan) {
    if (!study.RunOne(run)) break;
  }
  return study.Take();
}

}  // namespace rankwise
