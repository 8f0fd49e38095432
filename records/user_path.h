// Paths as users type them.

#ifndef RECORDS_USER_PATH_H_
#define RECORDS_USER_PATH_H_

#include <string>

namespace rankwise {

// `path` from the folder in which the command was typed: `bazel run` starts
// binaries in their runfiles and names that folder in BUILD_WORKING_DIRECTORY.
// Without it, from the current folder. Absolute, without "." and "..", and
// "folder/" as "folder". "" stays "": no path was given. For binaries;
// libraries read no environment.
std::string UserPath(const std::string& path);

}  // namespace rankwise

#endif  // RECORDS_USER_PATH_H_
