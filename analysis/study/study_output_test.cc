#include "analysis/study/study_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/run_trace.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

RunTrace RunOf(const std::string& source_hash) {
  RunTrace run;
  run.ranks.emplace_back();
  run.ranks[0].run.source_hash = source_hash;
  run.ranks[0].run.versions.torch = "2";
  return run;
}

TEST(DifferentCodeText, NamesTheSourcesThatDiffer) {
  EXPECT_EQ(DifferentCodeText({}), "");
  EXPECT_EQ(DifferentCodeText({RunOf("a"), RunOf("a")}), "");
  EXPECT_THAT(
      DifferentCodeText({RunOf("a"), RunOf("b"), RunOf("a"), RunOf("")}),
      HasSubstr("runs are of source a with torch 2 (2 runs), source b with "
                "torch 2 (1 run), unknown code (1 run);"));
}

TEST(ShellWord, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellWord("/a/b-1.c"), "/a/b-1.c");
  EXPECT_EQ(ShellWord("my study"), "'my study'");
  EXPECT_EQ(ShellWord("a'b$c"), "'a'\\''b$c'");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace
}  // namespace rankwise
