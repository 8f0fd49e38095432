#include "absl/strings/match.h"
#include "analysis/report/report.h"
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

TEST(ReportPageTest, WhatIsPutInIsNotATemplate) {
  const std::string page =
      ReportPage("{{data}}", {{"name", "{{plotly}}"}}, "var a = '{{js}}';");
  EXPECT_THAT(page, HasSubstr("<title>{{data}}</title>"));
  EXPECT_THAT(page, HasSubstr(R"({"name":"{{plotly}}"})"));
  EXPECT_THAT(page, HasSubstr("var a = '{{js}}';"));
}

TEST(ReportPageTest, EveryPlaceIsFilled) {
  const std::string page = ReportPage("title", nullptr, "plotly");
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_TRUE(absl::StartsWith(page, "<!doctype html>"));
}

}  // namespace
}  // namespace rankwise
