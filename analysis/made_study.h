// The record files of a study that nobody ran, as large as one likes: to see
// how soon and in how much memory a study is summarised.

#ifndef ANALYSIS_MADE_STUDY_H_
#define ANALYSIS_MADE_STUDY_H_

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

}  // namespace rankwise

#endif  // ANALYSIS_MADE_STUDY_H_
