// The flags that describe a study; those that say what is done with it, or
// where, are study.cc's.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_FLAGS_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_FLAGS_H_

#include <cstdint>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_plan.h"
#include "records/run_origin.h"

ABSL_DECLARE_FLAG(int64_t, warmup_steps);
ABSL_DECLARE_FLAG(bool, oversubscribe);

namespace rankwise {

// Fails with a message that names the flag to change.
absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host);

// What study.flags says of a study that these flags describe.
StudyDescription DescribeStudy(const StudyConfig& study, const HostInfo& host);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FLAGS_H_
