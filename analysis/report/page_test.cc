#include "analysis/report/page.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HtmlEscapedTest, LeavesNoMarkup) {
  EXPECT_EQ(HtmlEscaped("a <b> & \"c\" 'd'"),
            "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
}

TEST(ScriptSafeJsonTest, EndsNoScriptAndReadsBack) {
  const nlohmann::json data = {{"name", "</script><!-- <script>"}};
  const std::string text = ScriptSafeJson(data);
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_EQ(nlohmann::json::parse(text), data);
}

TEST(ScriptSafeJsonTest, ReplacesBytesThatAreNotUtf8) {
  const nlohmann::json data = {{"name", "a\xff"}};
  EXPECT_EQ(nlohmann::json::parse(ScriptSafeJson(data))["name"],
            "a\xef\xbf\xbd");
}

TEST(PageTextTest, InsertedTextIsNotATemplate) {
  const std::string page = PageText("{{data}}", {{"name", "{{plotly}}"}},
                                    "var a = '{{js}}';", "drawAll('{{css}}');");
  EXPECT_THAT(page, HasSubstr("<title>{{data}}</title>"));
  EXPECT_THAT(page, HasSubstr(R"({"name":"{{plotly}}"})"));
  EXPECT_THAT(page, HasSubstr("var a = '{{js}}';"));
  EXPECT_THAT(page, HasSubstr("drawAll('{{css}}');"));
}

TEST(PageTextTest, EveryPlaceholderIsReplaced) {
  const std::string page = PageText("title", nullptr, "plotly", "");
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_TRUE(absl::StartsWith(page, "<!doctype html>"));
}

TEST(FindPlotlyTest, IsInTheRunfiles) {
  const std::string root = testing::TempDir() + "/find_plotly";
  const std::string program = root + "/bin/study";
  const std::string tests = root + "/bin/study_test.runfiles";
  EXPECT_THAT(
      std::string(FindPlotly("", program, tests.c_str()).status().message()),
      HasSubstr("start study with `./bazelw run`, or pass --plotly_js"));
  const std::string file = "/plotly/plotly.min.js";
  const auto make = [&file](const std::string& runfiles) {
    std::filesystem::create_directories(runfiles + "/plotly");
    std::ofstream(runfiles + file) << "Plotly";
  };
  make(program + ".runfiles");
  EXPECT_EQ(*FindPlotly("", program, tests.c_str()),
            program + ".runfiles" + file);
  EXPECT_EQ(*FindPlotly("", program, nullptr), program + ".runfiles" + file);
  make(tests);
  EXPECT_EQ(*FindPlotly("", program, tests.c_str()), tests + file);
  EXPECT_EQ(*FindPlotly("mine.js", program, nullptr), "mine.js");
}

}  // namespace
}  // namespace rankwise
