#include "records/parse_flags.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace rankwise {
namespace {

bool parsing = false;
bool asked_for_help = false;

bool AsksForHelp(absl::string_view argument) {
  return absl::StartsWith(argument, "--help") ||
         absl::StartsWith(argument, "-help");
}

// Abseil ends the process itself, with a code of its own choice and no hook:
// what exits by 1 while flags are parsed has printed help or a complaint.
void CorrectExitCode(int status, void*) {
  if (!parsing || status != 1) return;
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(asked_for_help ? 0 : kBadUsage);
}

}  // namespace

int ExitCode(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? kBadUsage : kFailed;
}

std::vector<char*> ParseFlags(int argc, char** argv) {
  static const int registered = on_exit(CorrectExitCode, nullptr);
  static_cast<void>(registered);
  asked_for_help = false;
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    asked_for_help |= AsksForHelp(argv[i]);
  }
  parsing = true;
  std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  parsing = false;
  return positional;
}

}  // namespace rankwise
