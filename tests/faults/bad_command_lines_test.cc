// Tests invalid command lines of all binaries: each must end soon, with its
// exit code and one line that states the error and the remedy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/test_process.h"
#include "records/command_line.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// A line of bad_command_lines.txt.
struct BadCommandLine {
  std::string name;  // of the test
  std::string command;
  int code = 2;
  std::string message;
};

void PrintTo(const BadCommandLine& line, std::ostream* out) {
  *out << line.command;
}

// Returns the same command for several ranks, none of which may start; nullopt
// if the command specifies the number of ranks.
std::optional<BadCommandLine> OnTwoRanks(BadCommandLine line) {
  const absl::string_view single = "trainers/single";
  if (!absl::StartsWith(line.command, single) ||
      absl::StrContains(line.command, "--nproc"))
    return std::nullopt;
  line.name += "OnTwoRanks";
  line.command =
      absl::StrCat("trainers/ddp --nproc=2",
                   absl::string_view(line.command).substr(single.size()));
  return line;
}

std::vector<BadCommandLine> ReadTable() {
  std::vector<BadCommandLine> lines;
  std::ifstream file(Runfile("tests/faults/bad_command_lines.txt"));
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.empty() || text[0] == '#') continue;
    for (const int code : {kBadUsage, kFailed}) {
      const std::vector<std::string> parts = absl::StrSplit(
          text, absl::MaxSplits(code == kBadUsage ? " => " : " =1> ", 1));
      if (parts.size() != 2) continue;
      lines.push_back({absl::StrCat("Line", number), parts[0], code, parts[1]});
      if (const auto both = OnTwoRanks(lines.back())) lines.push_back(*both);
    }
  }
  return lines;
}

class BadCommandLineTest : public ::testing::TestWithParam<BadCommandLine> {};

TEST_P(BadCommandLineTest, IsRefusedByOneLine) {
  std::vector<std::string> argv = absl::StrSplit(GetParam().command, ' ');
  argv[0] = Runfile(argv[0]);
  TestProcess run(argv, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.Wait(), GetParam().code);
  const std::string said = run.Stderr();
  EXPECT_THAT(said, HasSubstr(GetParam().message));
  EXPECT_THAT(said, Not(HasSubstr("[launcher]"))) << "ranks were started";
  EXPECT_THAT(std::vector<std::string>(
                  absl::StrSplit(said, '\n', absl::SkipWhitespace())),
              SizeIs(1));
  EXPECT_TRUE(std::none_of(said.begin(), said.end(), [](char c) {
    return absl::ascii_iscntrl(c) && c != '\n';
  }));
}

INSTANTIATE_TEST_SUITE_P(Table, BadCommandLineTest,
                         ::testing::ValuesIn(ReadTable()),
                         [](const auto& info) { return info.param.name; });

TEST(BadCommandLinesTest, AreMany) { EXPECT_GE(ReadTable().size(), 150); }

}  // namespace
}  // namespace rankwise
