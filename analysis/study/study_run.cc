#include "analysis/study/study_run.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/study_folder.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

template <typename... Parts>
absl::Status Wrong(const std::string& path, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", parts...));
}

// Checks the records of a run of config.max_steps steps, or of the benchmark.
absl::Status CheckRecords(const RunTrace& run, const StudyConfig& config,
                          const PlannedRun& planned, const std::string& path) {
  const RunRecord& opened = run.ranks[0].run;
  if (opened.binary != planned.trainer) {
    return Wrong(path, "holds a run of ", opened.binary, " instead of ",
                 planned.trainer);
  }
  const int64_t ranks = opened.world_size * ReplicasOf(opened);
  if (ranks != planned.world_size) {
    return Wrong(path, "the run had ", ranks, " ranks instead of ",
                 planned.world_size);
  }
  if (std::ssize(run.ranks) != opened.world_size) {
    return Wrong(path, "has the records of ", run.ranks.size(), " of ",
                 opened.world_size, " ranks");
  }
  if (!planned.IsTraining()) {
    for (const RankTrace& rank : run.ranks) {
      if (!rank.collectives.empty()) continue;
      return Wrong(path, "rank ", rank.run.rank, " measured nothing");
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto throughput,
                   MeasureThroughput(run, {config.warmup_steps}));
  const int64_t steps = config.warmup_steps + throughput.steps;
  if (steps == config.max_steps) return absl::OkStatus();
  return Wrong(path, "holds ", steps, " steps instead of ", config.max_steps);
}

// Returns the only run that the file of a finished run may contain.
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

constexpr int kShownLogLines = 20;

using Clock = std::chrono::steady_clock;

absl::Duration Since(Clock::time_point start) {
  return absl::FromChrono(Clock::now() - start);
}

// Returns "1612 images/s, 5.2 s".
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

// Executes runs, with a line for each: "[ 3/20] ddp x2, batch 32 per rank, run
// 1: 1612 images/s, 5.2 s; about 1m20s left".
class StudyRunner {
 public:
  StudyRunner(const StudyConfig& config, RunTimes times)
      : config_(config), times_(std::move(times)) {}

  void Keep(RunTrace run, const PlannedRun& planned) {
    ++tallies_[planned.CellStem()].done;
    result_.runs.push_back(std::move(run));
  }

  // Executes the first of `left`, the missing runs. Returns false if the study
  // was interrupted.
  bool RunNext(absl::Span<const PlannedRun> left, HeldSignals& signals) {
    const PlannedRun& run = left.front();
    left.remove_prefix(1);
    ++count_;
    const std::string heading =
        absl::StrFormat("[%2d/%d] %s, run %d: ", count_, count_ + left.size(),
                        run.Name(), run.repetition);
    if (on_terminal_) std::cout << heading << "..." << std::flush;
    const absl::StatusOr<std::string> outcome = Outcome(run, signals);
    const bool goes_on = !absl::IsCancelled(outcome.status());
    if (on_terminal_) std::cout << "\r\033[K";
    std::cout << heading
              << (outcome.ok() ? *outcome
                  : goes_on    ? "failed"
                               : "interrupted");
    if (!left.empty() && goes_on) {
      std::cout << "; about "
                << absl::FormatDuration(
                       absl::Trunc(times_.Sum(config_, left), absl::Seconds(1)))
                << " left";
    }
    std::cout << std::endl;
    if (!outcome.ok() && goes_on) Report(run, outcome.status());
    return goes_on;
  }

  // Sorts the runs in the order of reading the folder, so that the answer is
  // the same.
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

  // Executes the run, unless its configuration has only failed so far. Returns
  // the text to print.
  absl::StatusOr<std::string> Outcome(const PlannedRun& run,
                                      HeldSignals& signals) {
    Tally& tally = tallies_[run.CellStem()];
    if (tally.failed > 0 && tally.done == 0) {
      return "skipped, as this configuration has only failed so far";
    }
    const Clock::time_point start = Clock::now();
    absl::StatusOr<RunTrace> trace = MakeRun(config_, run, signals);
    const absl::Duration elapsed = Since(start);
    if (!trace.ok()) {
      ++tally.failed;
      if (tally.done == 0) times_.Add(run, 0);  // the others are skipped
      return trace.status();
    }
    times_.Add(run, absl::ToDoubleSeconds(elapsed));
    AddDuration(config_.output_dir, run.FileStem(), elapsed);
    const std::string achieved = Achieved(*trace, config_, elapsed);
    Keep(*std::move(trace), run);
    return achieved;
  }

  void Report(const PlannedRun& run, const absl::Status& status) {
    const std::string log_path = PathsOfRun(config_.output_dir, run).log;
    result_.failed.push_back(absl::StrCat(run.Name(), ", run ", run.repetition,
                                          ": ", status.message()));
    std::cout << "  " << status.message() << "\n";
    const std::string lines = LastLines(log_path, kShownLogLines);
    if (lines.empty()) return;
    std::cout << "  its last lines (all of them in " << log_path << "):\n"
              << lines << std::endl;
  }

  const StudyConfig& config_;
  const bool on_terminal_ = isatty(STDOUT_FILENO) == 1;
  RunTimes times_;
  size_t count_ = 0;                      // number of executed runs
  std::map<std::string, Tally> tallies_;  // by cell
  StudyResult result_;
};

}  // namespace

RunPaths PathsOfRun(const std::string& dir, const PlannedRun& run) {
  const std::string record = absl::StrCat(dir, "/", run.FileStem(), ".jsonl");
  return {record, record + ".incomplete",
          absl::StrCat(dir, "/logs/", run.FileStem(), ".log")};
}

absl::StatusOr<RunTrace> MakeRun(const StudyConfig& config,
                                 const PlannedRun& planned,
                                 HeldSignals& signals) {
  const RunPaths paths = PathsOfRun(config.output_dir, planned);
  ASSIGN_OR_RETURN(const std::string binary,
                   ProgramPath(config.trainer_dir, planned.trainer));
  std::error_code error;
  fs::remove(paths.incomplete, error);  // runs append to existing files
  Command command;
  command.arguments = RunCommandLine(config, planned, binary, paths.incomplete);
  command.output_path = paths.log;
  command.timeout = config.run_timeout;
  RETURN_IF_ERROR(RunCommand(command, signals));
  ASSIGN_OR_RETURN(RunTrace run,
                   LoadChecked(config, planned, paths.incomplete));
  fs::rename(paths.incomplete, paths.record, error);
  if (error) {
    return Wrong(paths.record, "cannot be written: ", error.message());
  }
  run.source = paths.record;
  return run;
}

absl::StatusOr<RunTrace> LoadFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned) {
  const RunPaths paths = PathsOfRun(config.output_dir, planned);
  std::error_code ignored;
  if (!fs::exists(paths.record, ignored)) {
    return absl::NotFoundError(absl::StrCat(paths.record, " is not there"));
  }
  return LoadChecked(config, planned, paths.record);
}

absl::StatusOr<RunTrace> FindFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned) {
  absl::StatusOr<RunTrace> run = LoadFinishedRun(config, planned);
  if (run.ok() || absl::IsNotFound(run.status())) return run;
  const RunPaths paths = PathsOfRun(config.output_dir, planned);
  std::error_code ignored;
  fs::rename(paths.record, paths.incomplete, ignored);
  return absl::NotFoundError(run.status().message());
}

StudyResult RunStudy(const StudyConfig& config,
                     const std::vector<PlannedRun>& plan, RunTimes times,
                     HeldSignals& signals) {
  const std::map<std::string, double> took = ReadDurations(config.output_dir);
  std::vector<PlannedRun> missing;
  std::vector<std::pair<RunTrace, PlannedRun>> finished;
  for (const PlannedRun& run : plan) {
    auto found = FindFinishedRun(config, run);
    if (found.ok()) {
      finished.emplace_back(*std::move(found), run);
      const auto known = took.find(run.FileStem());
      if (known != took.end()) times.Add(run, known->second);
    } else {
      missing.push_back(run);
    }
  }
  StudyRunner study(config, std::move(times));
  for (auto& [run, planned] : finished) study.Keep(std::move(run), planned);
  if (!finished.empty()) {
    std::cout << "Kept: " << finished.size() << " of " << plan.size()
              << " runs are complete already." << std::endl;
  }
  for (size_t next = 0; next < missing.size(); ++next) {
    const auto left = absl::MakeConstSpan(missing).subspan(next);
    if (!study.RunNext(left, signals)) break;
  }
  return study.Take();
}

}  // namespace rankwise
