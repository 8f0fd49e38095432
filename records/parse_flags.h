// The command line as every program of this repository parses it.

#ifndef RECORDS_PARSE_FLAGS_H_
#define RECORDS_PARSE_FLAGS_H_

#include <vector>

#include "absl/status/status.h"

namespace rankwise {

// Exit codes.
inline constexpr int kFailed = 1;    // what was asked for could not be done
inline constexpr int kBadUsage = 2;  // wrong flags or arguments

// kBadUsage for InvalidArgument, else kFailed. Of a status that is not OK.
int ExitCode(const absl::Status& status);

// absl::ParseCommandLine, but for the exit codes with which it ends the
// process: kBadUsage where a flag is wrong (Abseil: 1), 0 after --help (1).
std::vector<char*> ParseFlags(int argc, char** argv);

}  // namespace rankwise

#endif  // RECORDS_PARSE_FLAGS_H_
