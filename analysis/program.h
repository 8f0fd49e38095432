// What the command lines of analysis's programs have in common.

#ifndef ANALYSIS_PROGRAM_H_
#define ANALYSIS_PROGRAM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "records/parse_flags.h"

namespace rankwise {

// What --help prints: `usage`, and the flags that are defined in files whose
// path contains `folder`, such as "analysis/compare/". To be called before the
// flags are parsed.
void DescribeProgram(absl::string_view usage, std::string folder);

// For a program that takes flags alone: InvalidArgument, naming the first
// argument and `example`, a flag with its value, where `positional` holds more
// than the program's own name, with which ParseFlags begins it.
absl::Status RefuseArguments(absl::Span<char* const> positional,
                             absl::string_view example);

// Writes "PROGRAM: MESSAGE" to the standard error; gives `exit_code` back.
int Complain(absl::string_view program, const absl::Status& status,
             int exit_code);

// The same with the status's ExitCode.
int Complain(absl::string_view program, const absl::Status& status);

}  // namespace rankwise

#endif  // ANALYSIS_PROGRAM_H_
