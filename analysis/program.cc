#include "analysis/program.h"

#include <iostream>
#include <utility>

#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rankwise {

void DescribeProgram(absl::string_view usage, std::string folder) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [folder =
                                    std::move(folder)](absl::string_view file) {
    return absl::StrContains(file, folder);
  };
  absl::SetFlagsUsageConfig(config);
}

absl::Status RefuseArguments(absl::Span<char* const> positional,
                             absl::string_view example) {
  if (positional.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected argument \"", positional[1],
                   "\"; all options are flags, as in ", example));
}

int Complain(absl::string_view program, const absl::Status& status,
             int exit_code) {
  std::cerr << program << ": " << status.message() << std::endl;
  return exit_code;
}

int Complain(absl::string_view program, const absl::Status& status) {
  return Complain(program, status, ExitCode(status));
}

}  // namespace rankwise
