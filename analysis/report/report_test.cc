#include "analysis/report/report.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "analysis/report/answer_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPlotly[] = "../plotly/plotly.min.js";
constexpr char kHostile[] = "</script><img src=x onerror=alert(1)><!--\"'&";

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A path that is unique to the test.
std::string Path(const std::string& name) {
  return absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name(), name);
}

// Returns the written page of an answer without the text of Plotly.
std::string OwnPage(const Answer& answer, const std::string& title) {
  const std::string path = Path(".html");
  const absl::Status status =
      WriteReport(answer, {title, kPlotly, "./bazelw run //:study"}, path);
  EXPECT_TRUE(status.ok()) << status;
  const std::string plotly = Read(kPlotly);
  EXPECT_GT(plotly.size(), 1000000u);
  const std::string page = Read(path);
  const std::string own = absl::StrReplaceAll(page, {{plotly, ""}});
  EXPECT_EQ(own.size() + plotly.size(), page.size()) << "Plotly is in it once";
  return own;
}

nlohmann::json DataOf(const std::string& page) {
  const std::string opening =
      "<script id=\"report-data\" type=\"application/json\">";
  const size_t start = page.find(opening) + opening.size();
  return nlohmann::json::parse(
      page.substr(start, page.find("</script>", start) - start));
}

size_t Count(absl::string_view text, absl::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

TEST(ReportTest, NeedsNothingElse) {
  const std::string page = OwnPage(*FullAnswer(""), "Study");
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
}

TEST(ReportTest, DataReadsBack) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const nlohmann::json data = DataOf(OwnPage(*answer, "Study"));
  EXPECT_EQ(data["cells"].size(), answer->cells.size());
  EXPECT_EQ(data["command"], "./bazelw run //:study");
  EXPECT_DOUBLE_EQ(data["scores"][0]["coverage"], 0.5);
}

TEST(ReportTest, NamesStayNames) {
  const std::string page = OwnPage(*FullAnswer(kHostile), kHostile);
  const std::string plain = OwnPage(*FullAnswer(""), "Study");
  EXPECT_EQ(Count(page, "</script>"), Count(plain, "</script>"));
  EXPECT_EQ(Count(page, "<!--"), Count(plain, "<!--"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("<title>&lt;/script&gt;&lt;img"));
  const nlohmann::json data = DataOf(page);
  EXPECT_EQ(data["findings"][0]["title"],
            absl::StrCat("How well it scales", kHostile));
  EXPECT_EQ(data["origin"]["machines"][0]["hostname"],
            absl::StrCat("box", kHostile));
}

TEST(ReportTest, NearlyNothingIsAReportToo) {
  const nlohmann::json data = DataOf(OwnPage(*BareAnswer(), "Study"));
  EXPECT_EQ(data["cells"].size(), 1);
  EXPECT_TRUE(data["ledgers"].empty());
}

TEST(ReportTest, WithoutPlotlyTheOldReportStays) {
  const std::string path = Path(".html");
  std::ofstream(path) << "old";
  const absl::Status status =
      WriteReport(*BareAnswer(), {"Study", "nowhere/plotly.min.js", ""}, path);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("nowhere/plotly.min.js"));
  EXPECT_EQ(Read(path), "old");
}

TEST(ReportTest, RefusesAScriptThatIsNotPlotly) {
  for (const char* text : {"alert(1)", "Plotly = 1; '</SCRIPT>'"}) {
    const std::string script = Path(".js");
    std::ofstream(script) << text;
    const absl::Status status =
        WriteReport(*BareAnswer(), {"Study", script, ""}, Path(".html"));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(script));
  }
}

TEST(ReportTest, AFolderThatIsMissingIsNamed) {
  const absl::Status status =
      WriteReport(*BareAnswer(), {"Study", kPlotly, ""}, Path("/report.html"));
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/report.html"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("folder must exist"));
}

TEST(ReportTest, LeavesNothingBehindWhereItCannotReplace) {
  const std::string folder = Path("");
  std::filesystem::create_directories(folder + "/report.html/full");
  const absl::Status status = WriteReport(*BareAnswer(), {"Study", kPlotly, ""},
                                          folder + "/report.html");
  EXPECT_FALSE(status.ok());
  const std::filesystem::directory_iterator files(folder);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

}  // namespace
}  // namespace rankwise
