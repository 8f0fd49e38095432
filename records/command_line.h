// The command line of all programs of this repository: flags, paths relative to
// the user's folder, quoted input in messages, and exit codes.
#ifndef RANKWISE_RECORDS_COMMAND_LINE_H_
#define RANKWISE_RECORDS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// Exit codes; docs/exit_codes.md lists those of all programs. kPreempted is in
// parallel/launch/signals.h.
inline constexpr int kFailed = 1;        // the requested work failed
inline constexpr int kBadUsage = 2;      // wrong flags or unreadable input
inline constexpr int kInconclusive = 3;  // the data do not decide the question

// Returns kBadUsage for InvalidArgument, else kFailed. `status` must not be OK.
int ExitCode(const absl::Status& status);

// For the rest of the process, makes a write to a pipe or connection without a
// reader fail with EPIPE instead of ending the process by SIGPIPE. Child
// processes inherit this unless SIG_DFL is restored.
void IgnoreSigpipe();

// Calls IgnoreSigpipe(), CheckStandardOutputAtExit() and
// absl::ParseCommandLine(), but exits with kBadUsage after a wrong flag
// (Abseil: 1) and with 0 after --help (Abseil: 1). Resolves the paths of
// --flagfile=FILE with UserPath() and reads them with ReadTextFile(); the last
// value of a flag wins.
std::vector<char*> ParseFlags(int argc, char** argv);

// Whether `flag` differs from its default. Checks for ignored flags reject only
// these: an explicit default has no effect.
bool DiffersFromDefault(const absl::CommandLineFlag& flag);

// Resolves `path` against the folder in which the command was typed: `bazel
// run` starts binaries in their runfiles and passes that folder in
// BUILD_WORKING_DIRECTORY. Without the variable, resolves against the current
// folder. Returns an absolute path without ".", ".." and a final "/"; "" for
// "". For binaries: libraries do not read the environment.
std::string UserPath(const std::string& path);

// Returns the first 40 bytes of `text` in double quotes, followed by "..." if
// it is longer. Escapes bytes other than printable ASCII, so that no file can
// write control sequences to a terminal: "0F0\x1b[2J".
std::string Quoted(absl::string_view text);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_COMMAND_LINE_H_
