#include "parallel/comm/parse_flags.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "absl/flags/parse.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace rankwise {
namespace {

constexpr int kBadUsage = 2;

constexpr absl::string_view kHelpFlags[] = {
    "help",        "helpfull",  "helpmatch",       "helpon",
    "helppackage", "helpshort", "only_check_args", "version"};

bool parsing = false;
bool help_asked = false;

// Whether Abseil is asked for something else than to run the program. It resets
// these flags as it reads them, so that their values do not tell.
bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    absl::string_view word = argv[i];
    if (!absl::ConsumePrefix(&word, "-")) continue;
    absl::ConsumePrefix(&word, "-");
    const absl::string_view name = word.substr(0, word.find('='));
    if (std::find(std::begin(kHelpFlags), std::end(kHelpFlags), name) !=
        std::end(kHelpFlags))
      return true;
  }
  return false;
}

// Abseil calls exit(1), whose code only this can still change.
void EndWithOwnCode() {
  if (!parsing) return;
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(help_asked ? 0 : kBadUsage);
}

}  // namespace

std::vector<char*> ParseFlags(int argc, char** argv) {
  help_asked = AsksForHelp(argc, argv);
  std::atexit(EndWithOwnCode);
  parsing = true;
  std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  parsing = false;
  return words;
}

}  // namespace rankwise
