#include "records/command_line.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/flags/parse.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "records/standard_output.h"
#include "records/text_file.h"

namespace rankwise {
namespace {

bool parsing = false;
bool asked_for_help = false;

[[noreturn]] void RefuseFlagfile(const std::string& path,
                                 absl::string_view reason) {
  std::cerr << "ERROR: --flagfile=" << path << ": " << reason << std::endl;
  std::exit(kBadUsage);
}

// Replaces --flagfile arguments by the flags in the files. Abseil's own parser
// would include a line's carriage return in the value.
class Arguments {
 public:
  void AddAll(absl::Span<const std::string> words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "--") {
        words_.insert(words_.end(), words.begin() + i, words.end());
        return;
      }
      absl::string_view files = words[i];
      if (absl::ConsumePrefix(&files, "--flagfile=") ||
          absl::ConsumePrefix(&files, "-flagfile=")) {
        AddFiles(files);
      } else if ((files == "--flagfile" || files == "-flagfile") &&
                 i + 1 < words.size()) {
        AddFiles(words[++i]);
      } else {
        words_.push_back(words[i]);
      }
    }
  }

  std::vector<std::string> Take() { return std::move(words_); }

 private:
  void AddFiles(absl::string_view files) {
    for (absl::string_view file :
         absl::StrSplit(files, ',', absl::SkipEmpty())) {
      AddFile(UserPath(std::string(file)));
    }
  }

  void AddFile(const std::string& path) {
    constexpr int kDeepest = 16;
    const absl::StatusOr<std::string> text = ReadTextFile(path);
    if (!text.ok()) RefuseFlagfile(path, text.status().message());
    if (++depth_ > kDeepest)
      RefuseFlagfile(path, "flag files are nested more than 16 deep");
    std::vector<std::string> flags;
    int number = 0;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      ++number;
      line = absl::StripLeadingAsciiWhitespace(line);
      if (line.empty() || line[0] == '#') continue;
      if (line[0] != '-' || line == "--") {
        RefuseFlagfile(
            path, absl::StrCat("line ", number, ": expected --flag=value, not ",
                               Quoted(line)));
      }
      flags.emplace_back(line);
    }
    AddAll(flags);
    --depth_;
  }

  int depth_ = 0;
  std::vector<std::string> words_;
};

// Returns pointers to strings that live as long as the process.
std::vector<char*> WithoutFlagfiles(int argc, char** argv) {
  static auto* kept = new std::deque<std::string>;
  Arguments arguments;
  arguments.AddAll(std::vector<std::string>(argv + 1, argv + argc));
  std::vector<char*> pointers = {argv[0]};
  for (std::string& word : arguments.Take()) {
    kept->push_back(std::move(word));
    pointers.push_back(kept->back().data());
  }
  return pointers;
}

// Abseil exits without a hook and with its own code: an exit with 1 during flag
// parsing has printed help or an error.
void CorrectExitCode(int status, void*) {
  if (!parsing || status != 1) return;
  const int code = FinishStandardOutput(asked_for_help ? 0 : kBadUsage);
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
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
  // Removes the final "/" of "folder/".
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
  CheckStandardOutputAtExit();
  static const int registered = on_exit(CorrectExitCode, nullptr);
  static_cast<void>(registered);
  asked_for_help = false;
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    asked_for_help |= absl::StartsWith(argv[i], "--help") ||
                      absl::StartsWith(argv[i], "-help");
  }
  std::vector<char*> arguments = WithoutFlagfiles(argc, argv);
  parsing = true;
  std::vector<char*> positional = absl::ParseCommandLine(
      static_cast<int>(arguments.size()), arguments.data());
  parsing = false;
  return positional;
}

}  // namespace rankwise
