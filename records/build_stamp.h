// The code that this binary was built from, as stamped when it was built: the
// same under `bazel run`, torchrun and srun.

#ifndef RECORDS_BUILD_STAMP_H_
#define RECORDS_BUILD_STAMP_H_

#include <string>

namespace rankwise {

struct BuildStamp {
  // Of the sources, uncommitted changes included (build_stamp.sh): equal where
  // the code is, whatever was committed in between. "" when unknown.
  std::string source_hash;
  // HEAD when the sources became these: 40 digits, or "" when unknown.
  std::string git_commit;
  // Whether the sources were those of the commit: "clean", "modified", or
  // "unknown".
  std::string git_state = "unknown";
};

// All of it unknown in a program that does not link //records:stamp_this_build,
// as tests, and in one built without our --workspace_status_command (.bazelrc).
BuildStamp ThisBuildStamp();

}  // namespace rankwise

#endif  // RECORDS_BUILD_STAMP_H_
