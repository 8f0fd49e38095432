// The command line as every program of this repository reads it: flags, paths
// as users type them, pieces of their input in messages, and exit codes.
#ifndef RANKWISE_RECORDS_COMMAND_LINE_H_
#define RANKWISE_RECORDS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// Exit codes, listed for all programs in docs/exit_codes.md. kPreempted is in
// parallel/launch/signals.h.
inline constexpr int kFailed = 1;     // the requested work failed
inline constexpr int kBadUsage = 2;   // wrong flags or unreadable input
inline constexpr int kCannotSay = 3;  // the data do not decide the question

// kBadUsage for InvalidArgument, else kFailed. Of a status that is not OK.
int ExitCode(const absl::Status& status);

// From now on, for the life of the process, a write to a pipe or connection
// whose reader is gone fails with EPIPE instead of ending the process by
// SIGPIPE. Programs that the process executes inherit this unless they or it
// restore SIG_DFL.
void IgnoreSigpipe();

// IgnoreSigpipe(), CheckStandardOutputAtExit() and absl::ParseCommandLine, but
// for the exit codes with which it ends the process: kBadUsage where a flag is
// wrong (Abseil: 1), 0 after --help (1). The paths of --flagfile=FILE are
// UserPaths, and are read by ReadTextFile(); a later flag wins over an earlier
// one.
std::vector<char*> ParseFlags(int argc, char** argv);

// Whether `flag` has another value than its default. Checks of flags that would
// be ignored refuse only these: a default changes nothing, typed or not.
bool DiffersFromDefault(const absl::CommandLineFlag& flag);

// `path` from the folder in which the command was typed: `bazel run` starts
// binaries in their runfiles and names that folder in BUILD_WORKING_DIRECTORY.
// Without it, from the current folder. Absolute, without "." and "..", and
// "folder/" as "folder". "" stays "": no path was given. For binaries;
// libraries read no environment.
std::string UserPath(const std::string& path);

// In double quotes: the first 40 bytes, with "..." where there are more, and
// escapes for those that are not printable ASCII, so that no file can write
// control sequences to a terminal: "0F0\x1b[2J".
std::string Quoted(absl::string_view text);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_COMMAND_LINE_H_
