#include "analysis/text/program.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rankwise {
namespace {

constexpr std::pair<absl::string_view, double> kMemoryUnits[] = {
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"B", 1}};

}  // namespace

void DescribeProgram(absl::string_view usage, std::string folder) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [folder =
                                    std::move(folder)](absl::string_view file) {
    return absl::StrContains(file, folder);
  };
  absl::SetFlagsUsageConfig(config);
}

std::string OwnPath() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

absl::Status RefuseArguments(absl::Span<char* const> positional,
                             absl::string_view example) {
  if (positional.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected argument \"", positional[1],
                   "\"; all options are flags, as in ", example));
}

absl::StatusOr<std::vector<int64_t>> ParseNumbers(absl::string_view flag,
                                                  absl::string_view text,
                                                  int64_t least, int64_t most) {
  std::vector<int64_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < least || number > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, "=", text, ": expected numbers from ", least,
                       " to ", most, " with commas between them"));
    }
    numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

absl::StatusOr<int64_t> ParseMemory(absl::string_view flag,
                                    absl::string_view text) {
  absl::string_view number = text;
  double unit = 1;
  for (const auto& [suffix, bytes] : kMemoryUnits) {
    if (!absl::ConsumeSuffix(&number, suffix)) continue;
    unit = bytes;
    break;
  }
  double amount = 0;
  if (absl::SimpleAtod(number, &amount) && amount * unit >= 1 &&
      amount * unit < 1e18) {
    return static_cast<int64_t>(amount * unit);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", absl::CHexEscape(text),
                   ": expected an amount of memory such as 512MB, 1.5GiB or "
                   "4GB"));
}

int Complain(absl::string_view program, const absl::Status& status,
             std::optional<int> exit_code) {
  std::cerr << program << ": " << status.message() << std::endl;
  return exit_code.value_or(
      absl::IsFailedPrecondition(status) ? kInconclusive : ExitCode(status));
}

int RunProgram(const Program& program, int argc, char** argv,
               absl::Status (*run)()) {
  DescribeProgram(program.usage, program.folder);
  absl::Status status =
      RefuseArguments(ParseFlags(argc, argv), program.example);
  if (status.ok()) status = run();
  return status.ok() ? 0 : Complain(program.name, status);
}

}  // namespace rankwise
