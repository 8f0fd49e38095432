// Opens reports in a browser: every picture must be drawn, and nothing written
// to the console.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "analysis/answer/answer.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/history/history.h"
#include "analysis/prediction/prediction.h"
#include "analysis/report/answer_for_test.h"
#include "analysis/report/report.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/shell_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string OutputFolder() {
  const char* kept = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  return kept != nullptr ? kept : testing::TempDir();
}

class BrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (RunShell("command -v chromium").exit_code != 0) {
      GTEST_SKIP() << "there is no chromium on this machine; .ci/run installs "
                      "it, or: apt-get install chromium";
    }
    folder_ = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    report_ = folder_ + "/report.html";
  }

  void Write(const Answer& answer) {
    const absl::Status status =
        WriteReport(answer,
                    {"Scaling study of made-up figures",
                     "../plotly/plotly.min.js", "./bazelw run //:study"},
                    report_);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Runs Chromium on the report; returns its output, with --dump-dom the HTML
  // of the drawn page.
  std::string Show(const std::string& options, const std::string& query = "") {
    return ShowPage(report_ + query, options);
  }

  std::string ShowPage(const std::string& page, const std::string& options) {
    const Outcome output = RunShell(absl::StrCat(
        "HOME=", folder_,
        " timeout 100 chromium --headless=new --disable-gpu "
        "--disable-dev-shm-usage --user-data-dir=",
        folder_, "/profile ", ::getuid() == 0 ? "--no-sandbox " : "",
        "--window-size=1200,1600 "
        "--virtual-time-budget=20000 ",
        options, " \"file://", page, "\" 2>", folder_, "/log"));
    EXPECT_EQ(output.exit_code, 0)
        << RunShell("cat " + folder_ + "/log").output;
    return output.output;
  }

  // Returns the status that report() of page/chart.js wrote, or null.
  nlohmann::json StatusOf(const std::string& page) {
    const std::string opening = "<output id=\"report-status\" hidden=\"\">";
    const size_t start = page.find(opening);
    if (start == std::string::npos) return nullptr;
    const size_t end = page.find("</output>", start);
    return nlohmann::json::parse(absl::StrReplaceAll(
        page.substr(start + opening.size(), end - start - opening.size()),
        {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}}));
  }

  // Returns by how many pixels the report is wider than a phone's window of
  // 390 px (0 or less if it fits), and the elements that extend beyond the
  // window. Uses a frame, as Chromium's windows are at least 500 px wide.
  std::string BeyondAPhone(const std::string& options) {
    const std::string phone = folder_ + "/phone.html";
    std::ofstream(phone) << R"(<!doctype html><body>
<iframe src="report.html" style="width: 390px; height: 1600px; border: 0">
</iframe><output id="beyond"></output><script>
const timer = setInterval(() => {
  const page = document.querySelector('iframe').contentDocument;
  if (!page?.getElementById('report-status')?.textContent) return;
  clearInterval(timer);
  const root = page.scrollingElement, width = page.defaultView.innerWidth;
  const out = [...page.querySelectorAll('body *')].filter((one) =>
      one.getBoundingClientRect().right > width && !one.closest('.table, svg'));
  document.getElementById('beyond').textContent =
      [root.scrollWidth - width, ...out.map((one) =>
          `${one.tagName}#${one.id}.${one.className}`)].join(' ');
}, 100);
</script>)";
    const std::string shown =
        ShowPage(phone, "--allow-file-access-from-files --dump-dom " + options);
    const std::string opening = "<output id=\"beyond\">";
    const size_t start = shown.find(opening);
    if (start == std::string::npos) return "nothing was shown";
    const size_t text = start + opening.size();
    return shown.substr(text, shown.find("</output>", text) - text);
  }

  std::string folder_, report_;
};

std::set<std::string> Drawn(const nlohmann::json& status) {
  std::set<std::string> names;
  for (const auto& [name, marks] : status["marks"].items()) {
    if (marks > 0) names.insert(name);
  }
  return names;
}

const std::set<std::string>& AllPictures() {
  static const auto& names = *new std::set<std::string>(
      {"scaling-strong", "scaling-weak", "ledger-bars", "waterfall-bars",
       "layout-bars", "memory-bars", "roofline-points", "network-0",
       "network-1", "timeline-bars", "prediction-lines", "prediction-errors",
       "loss-lines"});
  return names;
}

TEST_F(BrowserTest, DrawsEveryPicture) {
  Write(*FullAnswer(""));
  const std::string page =
      Show("--blink-settings=preferredColorScheme=1 --dump-dom");
  const nlohmann::json status = StatusOf(page);
  ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
  EXPECT_EQ(status["done"], true);
  EXPECT_EQ(status["look"], "light");
  EXPECT_THAT(status["errors"], IsEmpty()) << status["errors"];
  EXPECT_EQ(Drawn(status), AllPictures());
  EXPECT_THAT(page, HasSubstr("dp 2, 1 x 4, ZeRO 3</td>"));
  EXPECT_THAT(page, HasSubstr("Median regret 10.0 % of 1 choice."));
  // A negative loss is drawn as a gain, and is in the table with its interval.
  EXPECT_THAT(page, ContainsRegex("data-unformatted=\"\\+[0-9.]+[^\"]*%\""));
  EXPECT_THAT(page, ContainsRegex("waiting for data</td><td[^>]*>-[0-9.]+"
                                  "</td><td[^>]*>-[0-9.]+"
                                  "</td><td[^>]*>\\[-[0-9.]+,.*[0-9.]+\\]"));
  for (const char* table : {"learning-table", "staleness-table"})
    EXPECT_THAT(page, HasSubstr(absl::StrCat("id=\"", table, "\"")));
  EXPECT_THAT(page, Not(HasSubstr("data-title=\"Share")))
      << "nothing offers to send figures elsewhere";
}

TEST_F(BrowserTest, DrawsThemInDarkToo) {
  Write(*FullAnswer(""));
  const nlohmann::json status =
      StatusOf(Show("--blink-settings=preferredColorScheme=0 --dump-dom"));
  ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
  EXPECT_EQ(status["look"], "dark");
  EXPECT_THAT(status["errors"], IsEmpty()) << status["errors"];
  EXPECT_EQ(Drawn(status), AllPictures());
  Show(
      "--blink-settings=preferredColorScheme=0 --hide-scrollbars "
      "--screenshot=" +
      OutputFolder() + "/dark.png >/dev/null");
}

// The page does not scroll sideways; wide tables scroll within it. Elements
// that extend beyond the window without widening the page, because they are
// clipped, are allowed: they are listed only to explain a failure.
TEST_F(BrowserTest, FitsAPhone) {
  Write(*FullAnswer(""));
  for (const char* scheme : {"1", "0"}) {
    const std::string beyond = BeyondAPhone(
        absl::StrCat("--blink-settings=preferredColorScheme=", scheme));
    EXPECT_THAT(beyond, MatchesRegex("(-[0-9]+|0)( .*)?"));
  }
}

TEST_F(BrowserTest, NamesDoNothing) {
  // The name is text, neither HTML nor a template of Plotly.
  Write(
      *FullAnswer("</script><img src=x onerror=pageErrors.push('ran')><b>%{x"
                  "}"));
  const std::string page = Show("--dump-dom");
  const nlohmann::json status = StatusOf(page);
  ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
  EXPECT_THAT(status["errors"], IsEmpty()) << status["errors"];
  EXPECT_EQ(Drawn(status), AllPictures());
  EXPECT_THAT(page, Not(HasSubstr("<img")));
}

TEST_F(BrowserTest, WithoutDataSaysWhatWouldBringIt) {
  Write(*BareAnswer());
  const std::string page = Show("--dump-dom");
  const nlohmann::json status = StatusOf(page);
  ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
  EXPECT_THAT(status["errors"], IsEmpty()) << status["errors"];
  EXPECT_THAT(status["marks"], IsEmpty());
  EXPECT_THAT(page, HasSubstr("--world_sizes=1,2</code>"));
  EXPECT_THAT(page, HasSubstr("--trainers=single,pipeline</code>"));
}

TEST_F(BrowserTest, ShowsThePartsThatTheAddressNames) {
  Write(*FullAnswer(""));
  const nlohmann::json status =
      StatusOf(Show("--dump-dom", "?show=findings,waterfall"));
  ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
  EXPECT_EQ(Drawn(status), std::set<std::string>({"waterfall-bars"}));
}

TEST_F(BrowserTest, UnknownIntervalsAreNotZero) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  ASSERT_FALSE(answer->scores.empty());
  const Interval unknown = {std::nan(""), std::nan("")};
  for (Score& score : answer->scores) {
    for (ScoredPrediction& point : score.points) {
      point.prediction.step_interval = unknown;
    }
  }
  for (Prediction& prediction : answer->predictions) {
    prediction.step_interval = unknown;
  }
  for (NetworkModel& network : answer->networks) {
    for (CollectiveCosts& costs : network.collectives) {
      for (CostCurve& curve : costs.curves) {
        for (CostPoint& point : curve.points) point.interval = unknown;
        curve.line.alpha_interval = curve.line.beta_interval = unknown;
      }
    }
  }
  Write(*answer);
  const std::string page = Show("--dump-dom");
  const nlohmann::json status = StatusOf(page);
  ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
  EXPECT_THAT(status["errors"], IsEmpty()) << status["errors"];
  EXPECT_EQ(Drawn(status), AllPictures());
  EXPECT_THAT(page, Not(ContainsRegex(">\\[0(.00)?,[^0-9]*0(.00)?\\]</td>")));
  EXPECT_THAT(page, HasSubstr("--recommend</code>"));
}

TEST_F(BrowserTest, Prints) {
  Write(*FullAnswer(""));
  const std::string printed = OutputFolder() + "/report.pdf";
  Show("--no-pdf-header-footer --print-to-pdf=" + printed);
  ASSERT_TRUE(std::filesystem::exists(printed));
  EXPECT_GT(std::filesystem::file_size(printed), 100000u);
}

// Two configurations over twelve days, one of which slows down on the seventh.
History MadeHistory() {
  std::vector<RunTrace> runs;
  for (int day = 0; day < 12; ++day) {
    for (int i = 0; i < 6; ++i) {
      RunTrace run = MakeRun(
          {.world_size = i % 2 + 1,
           .step_seconds = (i % 2 == 1 && day >= 6 ? 0.11 : 0.1) *
                           (1 + 0.004 * i + 0.003 * (day % 4)),
           .run_id = absl::StrFormat("202603%02d-120000-%d", day + 1, i)});
      for (RankTrace& rank : run.ranks)
        rank.run.source_hash = absl::StrCat(day);
      runs.push_back(std::move(run));
    }
  }
  HistoryConfig config;
  config.metrics = {"step_seconds"};
  return MakeHistory(runs, config).value();
}

TEST_F(BrowserTest, DrawsAHistory) {
  ASSERT_TRUE(
      WriteHistoryPage(MadeHistory(), {}, "../plotly/plotly.min.js", report_)
          .ok());
  for (const char* scheme : {"1", "0"}) {
    const std::string options =
        absl::StrCat("--blink-settings=preferredColorScheme=", scheme);
    const std::string page = Show(options + " --dump-dom");
    const nlohmann::json status = StatusOf(page);
    ASSERT_TRUE(status.is_object()) << "the page did not come to its end";
    EXPECT_THAT(status["errors"], IsEmpty()) << status["errors"];
    EXPECT_EQ(Drawn(status), std::set<std::string>({"history"}));
    EXPECT_THAT(page, HasSubstr("slower</td><td>2026-03-07</td>"));
    EXPECT_THAT(BeyondAPhone(options), MatchesRegex("(-[0-9]+|0)( .*)?"));
  }
  Show(
      "--blink-settings=preferredColorScheme=1 --hide-scrollbars "
      "--screenshot=" +
      OutputFolder() + "/history.png >/dev/null");
}

TEST_F(BrowserTest, ThePictureOfTheReadmeIsMade) {
  Write(*FullAnswer(""));
  // Characters that are special in a URL.
  const std::string odd = folder_ + "/a#b?c%41.html";
  std::filesystem::copy_file(report_, odd);
  const std::string picture = OutputFolder() + "/report.png";
  const Outcome output = RunShell(absl::StrCat(
      "analysis/report/screenshot.sh '", odd, "' ", picture, " 2>&1"));
  ASSERT_EQ(output.exit_code, 0) << output.output;
  EXPECT_GT(std::filesystem::file_size(picture), 30000u);
  EXPECT_LT(std::filesystem::file_size(picture), 250000u);
}

}  // namespace
}  // namespace rankwise
