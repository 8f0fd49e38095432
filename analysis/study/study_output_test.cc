#include "analysis/study/study_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/run_trace.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

RunTrace RunOf(const std::string& commit) {
  RunTrace run;
  run.ranks.emplace_back();
  run.ranks[0].run.git_commit = commit;
  return run;
}

TEST(CommitsText, NamesTheCommitsThatDiffer) {
  const std::string a(40, 'a'), b(40, 'b');
  EXPECT_EQ(CommitsText({}), "");
  EXPECT_EQ(CommitsText({RunOf(a), RunOf(a)}), "");
  EXPECT_THAT(CommitsText({RunOf(a), RunOf(b), RunOf(a), RunOf("")}),
              HasSubstr("runs are of aaaaaaaaaaaa (2 runs), an unknown commit "
                        "(1 run), bbbbbbbbbbbb (1 run);"));
}

TEST(ShellWord, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellWord("/a/b-1.c"), "/a/b-1.c");
  EXPECT_EQ(ShellWord("my study"), "'my study'");
  EXPECT_EQ(ShellWord("a'b$c"), "'a'\\''b$c'");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace
}  // namespace rankwise
