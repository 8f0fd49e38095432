// Makes the runs of a study, one at a time, and keeps what each recorded.

#ifndef ANALYSIS_STUDY_STUDY_RUNNER_H_
#define ANALYSIS_STUDY_STUDY_RUNNER_H_

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "analysis/run_trace.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

struct StudyRunnerConfig {
  std::string trainer_dir;
  // Takes STEM.jsonl of every run that ended well, logs/STEM.log of every run,
  // and durations.csv; what another run recorded stays STEM.jsonl.incomplete.
  // It must have been prepared by PrepareStudyFolder (study_folder.h).
  std::string output_dir;
  absl::Duration run_timeout = absl::Minutes(10);
  bool on_terminal = false;  // also show the run that is going on
};

struct StudyResult {
  // By file name, those among them that were found finished.
  std::vector<RunTrace> runs;
  std::vector<std::string> failed;  // one line for each
  int interrupted_by = 0;           // the signal that ended the study, or 0
};

// Makes the runs of `plan` that the folder has not finished yet. Progress goes
// to `progress`, one line a run. A failed run is reported there with its last
// lines, and the study goes on, without the other repetitions of a
// configuration that has only failed. Needs a HeldSignals that lives
// (subprocess.h).
StudyResult RunStudy(const StudyConfig& config,
                     const std::vector<PlannedRun>& plan,
                     const StudyRunnerConfig& runner, std::ostream& progress);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_RUNNER_H_
