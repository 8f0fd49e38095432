#include "records/build_stamp.h"

namespace rankwise {

// Of the generated file of :stamp_this_build, where that is linked.
extern const char kStampedSourceHash[] __attribute__((weak));
extern const char kStampedGitCommit[] __attribute__((weak));
extern const char kStampedGitState[] __attribute__((weak));

BuildStamp ThisBuildStamp() {
  BuildStamp stamp;
  if (kStampedSourceHash == nullptr) return stamp;
  stamp.source_hash = kStampedSourceHash;
  stamp.git_commit = kStampedGitCommit;
  if (*kStampedGitState != '\0') stamp.git_state = kStampedGitState;
  return stamp;
}

}  // namespace rankwise
