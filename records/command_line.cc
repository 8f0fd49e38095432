#include "records/command_line.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "absl/flags/parse.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rankwise {
namespace {

bool parsing = false;
bool asked_for_help = false;

// Abseil would read a folder without end.
void RefuseFolder(const std::string& flagfile) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(flagfile, ignored)) return;
  std::cerr << "ERROR: --flagfile=" << flagfile
            << ": is a folder, not a file of flags\n";
  std::exit(kBadUsage);
}

// The paths of `--flagfile=a,b` from where the command was typed.
std::string WithUserPaths(absl::string_view flagfiles) {
  std::vector<std::string> paths = absl::StrSplit(flagfiles, ',');
  for (std::string& path : paths) {
    path = UserPath(path);
    RefuseFolder(path);
  }
  return absl::StrJoin(paths, ",");
}

// argv with WithUserPaths. What is changed lives as long as the process.
std::vector<char*> ResolveFlagfiles(int argc, char** argv) {
  static auto* changed = new std::deque<std::string>;
  std::vector<char*> arguments(argv, argv + argc);
  for (int i = 1; i < argc; ++i) {
    for (const absl::string_view flag : {"--flagfile=", "-flagfile="}) {
      absl::string_view files = argv[i];
      if (!absl::ConsumePrefix(&files, flag)) continue;
      changed->push_back(absl::StrCat(flag, WithUserPaths(files)));
      arguments[i] = changed->back().data();
    }
  }
  return arguments;
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

bool DiffersFromDefault(const absl::CommandLineFlag& flag) {
  return flag.CurrentValue() != flag.DefaultValue();
}

std::string UserPath(const std::string& path) {
  if (path.empty()) return "";
  const char* typed_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base = typed_in != nullptr
                                         ? std::filesystem::path(typed_in)
                                         : std::filesystem::current_path();
  const std::filesystem::path resolved = (base / path).lexically_normal();
  // "folder/" names the folder.
  return resolved.has_filename() ? resolved.string()
                                 : resolved.parent_path().string();
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 40;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kLongest)),
                      text.size() > kLongest ? "..." : "", "\"");
}

int ExitCode(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? kBadUsage : kFailed;
}

void IgnoreSigpipe() { ::signal(SIGPIPE, SIG_IGN); }

std::vector<char*> ParseFlags(int argc, char** argv) {
  IgnoreSigpipe();
  static const int registered = on_exit(CorrectExitCode, nullptr);
  static_cast<void>(registered);
  asked_for_help = false;
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    asked_for_help |= absl::StartsWith(argv[i], "--help") ||
                      absl::StartsWith(argv[i], "-help");
  }
  std::vector<char*> arguments = ResolveFlagfiles(argc, argv);
  parsing = true;
  std::vector<char*> positional =
      absl::ParseCommandLine(argc, arguments.data());
  parsing = false;
  return positional;
}

}  // namespace rankwise
