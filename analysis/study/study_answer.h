// What a study's runs say: in the terminal, and as report.html.

#ifndef ANALYSIS_STUDY_STUDY_ANSWER_H_
#define ANALYSIS_STUDY_STUDY_ANSWER_H_

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/run_trace.h"

namespace rankwise {

struct StudyAnswerConfig {
  int64_t warmup_steps = 10;
  bool oversubscribe = false;  // was asked for
  bool force = false;          // compare what would be refused
  std::string report_path;     // "": write none
  std::string plotly_js;       // what the report draws with
  std::string command;         // that gives this answer again
};

// Prints the summary to `out`, and writes the report. Both depend on the runs
// alone, so that records read back from disk give the same. Fails where
// nothing could be measured and where the report cannot be written; the summary
// is printed all the same.
absl::Status GiveAnswer(std::vector<RunTrace> runs,
                        const StudyAnswerConfig& config, std::ostream& out);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_ANSWER_H_
