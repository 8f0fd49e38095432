// Paths as users type them.

#ifndef ANALYSIS_USER_PATH_H_
#define ANALYSIS_USER_PATH_H_

#include <string>

namespace rankwise {

// `path` from the folder in which the command was typed: `bazel run` starts
// binaries in their runfiles and names that folder in BUILD_WORKING_DIRECTORY.
// Without it, from the current folder. Absolute, without "." and "..". "" stays
// "": no path was given. For binaries; libraries read no environment.
std::string UserPath(const std::string& path);

}  // namespace rankwise

#endif  // ANALYSIS_USER_PATH_H_
