// Shared parts of the command lines of analysis's programs.
#ifndef RANKWISE_ANALYSIS_TEXT_PROGRAM_H_
#define RANKWISE_ANALYSIS_TEXT_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "records/command_line.h"

namespace rankwise {

// Makes --help print `usage` and the flags that are defined in files whose path
// contains `folder`, such as "analysis/compare/". Must be called before the
// flags are parsed.
void DescribeProgram(absl::string_view usage, std::string folder);

// Returns the path of this process's executable.
std::string OwnPath();

// Checks that a program which takes only flags was given no arguments.
// `positional` is the result of ParseFlags, which begins with the program's
// name. InvalidArgument names the first argument and `example`, a flag with its
// value.
absl::Status RefuseArguments(absl::Span<char* const> positional,
                             absl::string_view example);

// Parses whole numbers from `least` to `most`, such as "8,1,64". Returns them
// in ascending order without duplicates. InvalidArgument names the flag.
absl::StatusOr<std::vector<int64_t>> ParseNumbers(absl::string_view flag,
                                                  absl::string_view text,
                                                  int64_t least, int64_t most);

// Parses an amount of memory: "512MB", "1.5GiB", "4000000000" (bytes). Returns
// bytes, rounded down, at least 1. InvalidArgument names the flag.
absl::StatusOr<int64_t> ParseMemory(absl::string_view flag,
                                    absl::string_view text);

// Writes "PROGRAM: MESSAGE" to stderr. Returns `exit_code`; if it is nullopt,
// kInconclusive for FailedPrecondition and ExitCode(status) for other errors.
int Complain(absl::string_view program, const absl::Status& status,
             std::optional<int> exit_code = std::nullopt);

struct Program {
  const char* name;     // "plan"
  const char* usage;    // passed to DescribeProgram
  const char* folder;   // passed to DescribeProgram
  const char* example;  // passed to RefuseArguments
};

// The main() of a program that takes only flags: parses them and calls `run`.
// Returns the exit code; writes an error with Complain.
int RunProgram(const Program& program, int argc, char** argv,
               absl::Status (*run)());

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_PROGRAM_H_
