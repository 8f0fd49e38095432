// What the command lines of analysis's programs have in common.
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

// What --help prints: `usage`, and the flags that are defined in files whose
// path contains `folder`, such as "analysis/compare/". To be called before the
// flags are parsed.
void DescribeProgram(absl::string_view usage, std::string folder);

// The path of this process's executable.
std::string OwnPath();

// For a program that takes flags alone: InvalidArgument, naming the first
// argument and `example`, a flag with its value, where `positional` holds more
// than the program's own name, with which ParseFlags begins it.
absl::Status RefuseArguments(absl::Span<char* const> positional,
                             absl::string_view example);

// "8,1,64": whole numbers from `least` to `most`, in ascending order, each
// once. InvalidArgument names the flag.
absl::StatusOr<std::vector<int64_t>> ParseNumbers(absl::string_view flag,
                                                  absl::string_view text,
                                                  int64_t least, int64_t most);

// "512MB", "1.5GiB", "4000000000": bytes, rounded down to a whole number, at
// least 1. InvalidArgument names the flag.
absl::StatusOr<int64_t> ParseMemory(absl::string_view flag,
                                    absl::string_view text);

// Writes "PROGRAM: MESSAGE" to the standard error. Returns `exit_code`, or
// without one kInconclusive for FailedPrecondition and ExitCode(status)
// otherwise.
int Complain(absl::string_view program, const absl::Status& status,
             std::optional<int> exit_code = std::nullopt);

struct Program {
  const char* name;     // "plan"
  const char* usage;    // passed to DescribeProgram
  const char* folder;   // passed to DescribeProgram
  const char* example;  // passed to RefuseArguments
};

// main() of a program that takes flags alone: the exit code, after `run` and a
// message where that fails.
int RunProgram(const Program& program, int argc, char** argv,
               absl::Status (*run)());

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_PROGRAM_H_
