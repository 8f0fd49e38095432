#include "analysis/study/study_run.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/programs.h"
#include "analysis/study/study_folder.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

template <typename... Parts>
absl::Status Wrong(const std::string& path, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", parts...));
}

absl::Status CheckCollectives(const RunTrace& run, const std::string& path) {
  for (const RankTrace& rank : run.ranks) {
    if (!rank.collectives.empty()) continue;
    return Wrong(path, "rank ", rank.run.rank, " measured nothing");
  }
  return absl::OkStatus();
}

// What a run of config.max_steps steps, or of the benchmark, must have.
absl::Status CheckRecords(const RunTrace& run, const StudyConfig& config,
                          const PlannedRun& planned, const std::string& path) {
  const RunRecord& opened = run.ranks[0].run;
  if (opened.binary != planned.trainer) {
    return Wrong(path, "holds a run of ", opened.binary, " instead of ",
                 planned.trainer);
  }
  if (opened.world_size != planned.world_size) {
    return Wrong(path, "the run had ", opened.world_size, " ranks instead of ",
                 planned.world_size);
  }
  if (static_cast<int64_t>(run.ranks.size()) != planned.world_size) {
    return Wrong(path, "has the records of ", run.ranks.size(), " of ",
                 planned.world_size, " ranks");
  }
  if (!planned.IsTraining()) return CheckCollectives(run, path);
  ASSIGN_OR_RETURN(const auto throughput,
                   MeasureThroughput(run, {config.warmup_steps}));
  const int64_t steps = config.warmup_steps + throughput.steps;
  if (steps == config.max_steps) return absl::OkStatus();
  return Wrong(path, "holds ", steps, " steps instead of ", config.max_steps);
}

// The one run that the file of a finished run must hold.
absl::StatusOr<RunTrace> LoadChecked(const StudyConfig& config,
                                     const PlannedRun& planned,
                                     const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<RunTrace> runs, LoadRuns(path));
  if (runs.size() != 1) {
    return Wrong(path, "holds ", runs.size(), " runs instead of one");
  }
  RETURN_IF_ERROR(CheckRecords(runs.front(), config, planned, path));
  return std::move(runs.front());
}

absl::StatusOr<CommandEnd> StartAndWait(const StudyConfig& config,
                                        const PlannedRun& planned,
                                        const StudyRunnerConfig& runner,
                                        const RunPaths& paths) {
  ASSIGN_OR_RETURN(const std::string binary,
                   planned.IsTraining()
                       ? TrainerPath(runner.trainer_dir, planned.trainer)
                       : CommBenchPath(runner.trainer_dir));
  std::error_code ignored;
  fs::remove(paths.incomplete, ignored);  // runs append to what is there
  Command command;
  command.arguments = RunArguments(config, planned, paths.incomplete);
  command.arguments.insert(command.arguments.begin(), binary);
  command.output_path = paths.log;
  command.timeout = runner.run_timeout;
  return RunCommand(command);
}

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
      const absl::Duration a_run =
          absl::FromChrono(std::chrono::steady_clock::now() - start_) / count_;
      out_ << "; about " << RoundedDuration(a_run * left) << " left";
    }
    out_ << std::endl;
  }

 private:
  const size_t total_;
  const bool on_terminal_;
  std::ostream& out_;
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
  size_t count_ = 0;
  std::string heading_;
};

// "1612 images/s, 5.2 s".
std::string Achieved(const RunTrace& run, const StudyConfig& config,
                     absl::Duration elapsed) {
  const std::string seconds =
      absl::StrFormat("%.1f s", absl::ToDoubleSeconds(elapsed));
  const auto throughput = MeasureThroughput(run, {config.warmup_steps});
  if (!throughput.ok()) return seconds;
  const ExampleUnit unit = UnitOf(run.ranks[0].run);
  return absl::StrFormat("%.0f %s, %s",
                         unit.Rate(throughput->examples_per_second),
                         unit.RateName(), seconds);
}

class StudyRunner {
 public:
  StudyRunner(const StudyConfig& config, const StudyRunnerConfig& runner,
              size_t total, std::ostream& out)
      : config_(config),
        runner_(runner),
        progress_(total, runner.on_terminal, out),
        out_(out) {}

  void Keep(RunTrace run, const PlannedRun& planned) {
    ++tallies_[planned.CellStem()].done;
    result_.runs.push_back(std::move(run));
  }

  // False: the study was interrupted.
  bool RunOne(const PlannedRun& run) {
    progress_.Begin(run);
    Tally& tally = tallies_[run.CellStem()];
    if (tally.failed > 0 && tally.done == 0) {
      progress_.End("skipped, as this configuration has only failed so far");
      return true;
    }
    RunOutcome outcome = MakeRun(config_, run, runner_);
    if (outcome.interrupted_by != 0) {
      result_.interrupted_by = outcome.interrupted_by;
      progress_.End("interrupted", /*goes_on=*/false);
      return false;
    }
    if (outcome.trace.ok()) {
      progress_.End(Achieved(*outcome.trace, config_, outcome.elapsed));
      AddDuration(runner_.output_dir, run.FileStem(), outcome.elapsed);
      Keep(*std::move(outcome.trace), run);
    } else {
      ++tally.failed;
      progress_.End("failed");
      Report(run, outcome.trace.status());
    }
    return true;
  }

  // The order in which the folder is read: the same runs, the same answer.
  StudyResult Take() {
    absl::c_sort(result_.runs, [](const RunTrace& a, const RunTrace& b) {
      return a.source < b.source;
    });
    return std::move(result_);
  }

 private:
  struct Tally {
    int done = 0;
    int failed = 0;
  };

  void Report(const PlannedRun& run, const absl::Status& status) {
    const std::string log_path = PathsOfRun(runner_.output_dir, run).log;
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
  std::map<std::string, Tally> tallies_;  // by cell
  StudyResult result_;
};

}  // namespace

RunPaths PathsOfRun(const std::string& dir, const PlannedRun& run) {
  const std::string record = absl::StrCat(dir, "/", run.FileStem(), ".jsonl");
  return {record, record + ".incomplete",
          absl::StrCat(dir, "/logs/", run.FileStem(), ".log")};
}

RunOutcome MakeRun(const StudyConfig& config, const PlannedRun& planned,
                   const StudyRunnerConfig& runner) {
  const RunPaths paths = PathsOfRun(runner.output_dir, planned);
  RunOutcome outcome;
  const absl::StatusOr<CommandEnd> end =
      StartAndWait(config, planned, runner, paths);
  if (!end.ok()) {
    outcome.trace = end.status();
    return outcome;
  }
  outcome.elapsed = end->elapsed;
  outcome.interrupted_by = end->interrupted_by;
  if (!end->ok()) {
    outcome.trace = end->timed_out
                        ? absl::DeadlineExceededError(end->Describe())
                        : absl::UnknownError(end->Describe());
    return outcome;
  }
  outcome.trace = LoadChecked(config, planned, paths.incomplete);
  if (!outcome.trace.ok()) return outcome;
  std::error_code error;
  fs::rename(paths.incomplete, paths.record, error);
  if (error) {
    outcome.trace = Wrong(paths.record, "cannot be written: ", error.message());
  } else {
    outcome.trace->source = paths.record;
  }
  return outcome;
}

absl::StatusOr<RunTrace> FindFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned,
                                         const std::string& dir) {
  const RunPaths paths = PathsOfRun(dir, planned);
  std::error_code ignored;
  if (!fs::exists(paths.record, ignored)) {
    return absl::NotFoundError(absl::StrCat(paths.record, " is not there"));
  }
  absl::StatusOr<RunTrace> run = LoadChecked(config, planned, paths.record);
  if (run.ok()) return run;
  fs::rename(paths.record, paths.incomplete, ignored);
  return absl::NotFoundError(run.status().message());
}

StudyResult RunStudy(const StudyConfig& config,
                     const std::vector<PlannedRun>& plan,
                     const StudyRunnerConfig& runner, std::ostream& progress) {
  std::vector<PlannedRun> missing;
  std::vector<std::pair<RunTrace, PlannedRun>> finished;
  for (const PlannedRun& run : plan) {
    auto found = FindFinishedRun(config, run, runner.output_dir);
    if (found.ok()) {
      finished.emplace_back(*std::move(found), run);
    } else {
      missing.push_back(run);
    }
  }
  StudyRunner study(config, runner, missing.size(), progress);
  for (auto& [run, planned] : finished) study.Keep(std::move(run), planned);
  if (!finished.empty()) {
    progress << "Kept: " << finished.size() << " of " << plan.size()
             << " runs are complete already." << std::endl;
  }
  for (const PlannedRun& run : missing) {
    if (!study.RunOne(run)) break;
  }
  return study.Take();
}

}  // namespace rankwise
