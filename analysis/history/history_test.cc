// Tests the binary through its command line, up to its files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/text/shell_for_test.h"
#include "nlohmann/json.hpp"
#include "records/record_writer.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HistoryTest : public testing::Test {
 protected:
  HistoryTest()
      : root_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  // Runs in the binary's runfiles, with paths relative to root_.
  Outcome History(const std::string& arguments) {
    return RunShell(absl::StrCat("BUILD_WORKING_DIRECTORY=", root_.string(),
                                 " analysis/history/history ", arguments,
                                 " 2>&1"));
  }

  // Writes two runs of ddp into a folder for the day.
  void Night(int day, double step_seconds) {
    const std::string folder = absl::StrCat("night", 10 + day);
    fs::create_directories(root_ / folder);
    for (int i = 0; i < 2; ++i) {
      RunTrace run = MakeRun(
          {.world_size = 2,
           .step_seconds = step_seconds * (1 + 0.002 * i + 0.001 * (day % 3)),
           .run_id = absl::StrFormat("202603%02d-120000-%d", day, i)});
      auto writer =
          RecordWriter::Open(root_ / folder / absl::StrCat(i, ".jsonl"));
      ASSERT_TRUE(writer.ok()) << writer.status();
      for (RankTrace& trace : run.ranks) {
        trace.run.source_hash = absl::StrCat("source", day);
        ASSERT_TRUE((*writer)->Write(Record(trace.run)).ok());
        ASSERT_TRUE((*writer)->Write(trace.steps).ok());
      }
    }
  }

  std::string Read(const std::string& name) {
    std::ifstream in(root_ / name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  const fs::path root_;
};

TEST_F(HistoryTest, FromFoldersToThePage) {
  std::string folders;
  for (int day = 1; day <= 8; ++day) {
    Night(day, day < 5 ? 0.1 : 0.12);
    absl::StrAppend(&folders, " night", 10 + day);
  }
  const Outcome outcome = History("--csv=h.csv" + folders);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              testing::ContainsRegex("step_seconds +slower +2026-03-05"));
  EXPECT_THAT(outcome.output, HasSubstr("Page: "));
  EXPECT_THAT(Read("h.csv"), HasSubstr("step_seconds,2026-03-05,"));
  const std::string page = Read("history.html");
  const std::string opening =
      "<script id=\"report-data\" type=\"application/json\">";
  const size_t start = page.find(opening) + opening.size();
  const auto data = nlohmann::json::parse(
      page.substr(start, page.find("</script>", start) - start));
  EXPECT_EQ(data["series"][0]["changes"][0]["at"], 4);
  EXPECT_EQ(data["points"].size(), 8);
}

TEST_F(HistoryTest, OneDayOrNoPage) {
  Night(1, 0.1);
  const Outcome outcome = History("--by=day --page= night11");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("History over 1 day, 2026-03-01"));
  EXPECT_FALSE(fs::exists(root_ / "history.html"));
}

TEST_F(HistoryTest, BadInputIsExitCode2) {
  Night(1, 0.1);
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected folders of records"},
      {"nowhere", "nowhere"},
      {"--by=month night11", "--by=month: expected commit or day"},
      {"--metrics=speed night11", "there is no \"speed\""},
      {"night11 night11", "name each folder once"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = History(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << arguments;
  }
}

TEST_F(HistoryTest, AFileThatCannotBeWrittenIsExitCode1) {
  Night(1, 0.1);
  for (const char* flag : {"--csv=nowhere/h.csv", "--page=nowhere/h.html",
                           "--plotly_js=nowhere/p.js"}) {
    const Outcome outcome = History(absl::StrCat(flag, " night11"));
    EXPECT_EQ(outcome.exit_code, 1) << flag << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("nowhere/")) << flag;
  }
}

}  // namespace
}  // namespace rankwise
