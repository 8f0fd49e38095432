// The record files of studies that nobody ran: as large as one likes, to see
// how soon and in how much memory a study is summarised; and with a known
// efficiency, to see whether it is found.
#ifndef RANKWISE_ANALYSIS_RUNS_MADE_STUDY_FOR_TEST_H_
#define RANKWISE_ANALYSIS_RUNS_MADE_STUDY_FOR_TEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rankwise {

struct MadeStudyConfig {
  int64_t records = 1'000'000;  // step and schedule records, at least
  uint64_t seed = 0;
};

// Median step of the made runs. A rank's steps lie around it with a standard
// deviation of 2 %.
inline constexpr double kMadeSingleStepSeconds = 0.1;
inline constexpr double kMadeDdpStepSeconds = 0.06;  // strong scaling

// Writes 3 runs each of single, of ddp on 2 ranks under strong and under weak
// scaling, and of a pipeline on 2 ranks into the folder `dir`, which must
// exist: one file a run. Equal configurations write equal bytes.
absl::Status WriteMadeStudy(const std::string& dir,
                            const MadeStudyConfig& config);

struct LateStudyConfig {
  int64_t ranks = 2;
  // Standard deviation of the normal variable whose absolute value a rank is
  // late by after the all-reduce, in every step anew; a share of the step.
  double lateness = 0;
  double efficiency = 0.8;  // of weak scaling, in truth
  uint64_t seed = 0;
};

// As in a study by default.
inline constexpr int64_t kLateStudyWarmupSteps = 10;
inline constexpr int64_t kLateStudySteps = 50;  // after them
// Of ddp's step, what the all-reduce takes once the last rank is there.
inline constexpr double kLateStudyAllReduceShare = 0.05;

// Writes 5 runs of single and 5 of ddp under weak scaling, as WriteMadeStudy
// does. What a rank is late by it waits less for the others' gradients, which
// are there once the last rank is. The time from the last all-reduce of the
// warm-up to the run's last is exactly what `efficiency` says, times a factor
// that makes the runs differ by 1 %, and is 1 in the median.
absl::Status WriteLateStudy(const std::string& dir,
                            const LateStudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_MADE_STUDY_FOR_TEST_H_
