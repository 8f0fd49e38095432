// Output of a study before its runs, or, with --dry_run, instead of them.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_OUTPUT_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_OUTPUT_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

struct RunTime {
  double seconds = 0;  // of one run, including start-up
  // "the runs in results/20260131-235959", or "a rough guess ..."
  std::string source;
};

// Estimates how long a study's runs take.
class RunTimes {
 public:
  // Reads the study in `own_dir` and those in `results_dir` that trained the
  // same model on the same data and machine as `study`; `own_dir` takes
  // precedence, then the latest. Skips other folders.
  RunTimes(const std::string& results_dir, const std::string& own_dir,
           const StudyDescription& study);

  // Returns the median duration of the cell's runs in this study; otherwise of
  // its runs in an earlier study, scaled to the number of steps; otherwise of
  // this study's runs of other cells (comm_bench or training, like `run`).
  // Without any runs, a rough guess: start-up of 0.5 s and 0.3 s per rank, and
  // the examples at the speed of one thread on an EPYC core, which more threads
  // and, except in model_parallel, more ranks divide at 60 % efficiency;
  // nullopt for a model of unknown speed.
  std::optional<RunTime> Of(const StudyConfig& config,
                            const PlannedRun& run) const;

  // Adds the duration of this study's `run`, including start-up; 0 if the other
  // runs of its cell will be skipped.
  void Add(const PlannedRun& run, double seconds);

  // Returns the total duration of `runs`. Runs without an estimate are assumed
  // to take as long as the others; zero if none has an estimate.
  absl::Duration Sum(const StudyConfig& config,
                     absl::Span<const PlannedRun> runs) const;

 private:
  void Read(const std::string& dir, const StudyDescription& study);

  struct Earlier {
    RunTime time;
    double steps = 0;
  };
  std::map<std::string, Earlier> by_cell_;          // PlannedRun::CellStem
  std::map<std::string, std::vector<double>> own_;  // seconds, likewise
  // durations of all runs of this study: training and comm_bench
  std::vector<double> trained_, others_;
};

// Returns "Study of single, ddp at world sizes 1, 2: 63 runs of 60 steps, ...".
std::string StudyHeading(const StudyConfig& config, const StudyPlan& plan);

// Returns the cells with their repetitions and durations, the total, and the
// source of the durations.
std::string DryRunText(const StudyConfig& config, const StudyPlan& plan,
                       const RunTimes& times);

// Returns the commands of all runs, one per line.
std::string CommandsText(const StudyConfig& config, const StudyPlan& plan);

// Returns "Not run: WHAT: why." for each configuration that is not run.
std::string NotRunText(const StudyPlan& plan);

// If the runs are not all of the same code, returns the number of runs per
// version; else "".
std::string DifferentCodeText(absl::Span<const RunTrace> runs);

// Quotes the text as one word of a shell command.
std::string ShellWord(const std::string& text);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_OUTPUT_H_
