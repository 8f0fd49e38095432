// Synthetic record files of studies: of any size, to measure the time and
// memory needed to summarise them; and with a known efficiency, to check that
// it is found.
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

// Median step of the synthetic runs; a rank's steps have a standard deviation
// of 2 %.
inline constexpr double kMadeSingleStepSeconds = 0.1;
inline constexpr double kMadeDdpStepSeconds = 0.06;  // strong scaling

// Writes 3 runs each of single, of ddp on 2 ranks under strong and under weak
// scaling, and of a pipeline on 2 ranks into the existing folder `dir`: one
// file per run. Equal configurations write identical bytes.
absl::Status WriteMadeStudy(const std::string& dir,
                            const MadeStudyConfig& config);

struct LateStudyConfig {
  int64_t ranks = 2;
  // A rank's lateness after the all-reduce, redrawn in every step, is the
  // absolute value of a normal variable with this standard deviation, as a
  // share of the step.
  double lateness = 0;
  double efficiency = 0.8;  // true efficiency of weak scaling
  uint64_t seed = 0;
};

// a study's defaults
inline constexpr int64_t kLateStudyWarmupSteps = 10;
inline constexpr int64_t kLateStudySteps = 50;  // after warm-up
// share of ddp's step from the arrival of the last rank to the end of the
// all-reduce
inline constexpr double kLateStudyAllReduceShare = 0.05;

// Writes 5 runs of single and 5 of ddp under weak scaling, like WriteMadeStudy.
// A late rank waits correspondingly less for the others' gradients, which
// arrive with the last rank. The time from the last all-reduce of the warm-up
// to the run's last matches `efficiency` exactly, times a factor with median 1
// that makes the runs differ by 1 %.
absl::Status WriteLateStudy(const std::string& dir,
                            const LateStudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_MADE_STUDY_FOR_TEST_H_
