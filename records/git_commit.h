// The commit a run was started from.

#ifndef RECORDS_GIT_COMMIT_H_
#define RECORDS_GIT_COMMIT_H_

#include <string>

namespace rankwise {

// The 40 digits of the commit checked out in `workspace` (a folder with a .git
// folder or file), or "" when there is none. Reads files only; runs no git. A
// binary passes BUILD_WORKSPACE_DIRECTORY, which `bazel run` sets.
std::string GitCommit(const std::string& workspace);

}  // namespace rankwise

#endif  // RECORDS_GIT_COMMIT_H_
