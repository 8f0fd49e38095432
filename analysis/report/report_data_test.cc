#include "analysis/report/report_data.h"

#include <limits>
#include <memory>

#include "analysis/answer/answer.h"
#include "analysis/report/answer_for_test.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::nlohmann::json;

TEST(ReportDataTest, HasEveryPartOfTheAnswer) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json data = ReportData(*answer);
  EXPECT_EQ(data["cells"].size(), answer->cells.size());
  EXPECT_EQ(data["series"].size(), answer->series.size());
  EXPECT_EQ(data["ledgers"].size(), answer->ledgers.size());
  EXPECT_EQ(data["waterfalls"].size(), answer->waterfalls.size());
  EXPECT_EQ(data["networks"].size(), answer->networks.size());
  EXPECT_EQ(data["scores"][0]["points"].size(), 2);
  EXPECT_EQ(data["predictions"].size(), answer->predictions.size());
  EXPECT_EQ(data["findings"][0]["title"], answer->findings[0].title);
  EXPECT_EQ(data["notes"], json(answer->notes));
}

TEST(ReportDataTest, CoverageFromTooFewRunsIsNotKnown) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  Score& score = answer->scores[0];
  score.points[0].prediction.fitted_runs = 2;
  score.coverage = std::numeric_limits<double>::quiet_NaN();
  const json data = ReportData(*answer)["scores"][0];
  EXPECT_TRUE(data["points"][0]["covered"].is_null());
  EXPECT_EQ(data["points"][1]["covered"], false);
  EXPECT_TRUE(data["coverage"].is_null());
  EXPECT_DOUBLE_EQ(data["median_relative_width"], 0.12);
}

TEST(ReportDataTest, TimelinesKeepEverySpan) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json picture = ReportData(*answer)["timelines"][0];
  EXPECT_EQ(picture["step"], 42);
  ASSERT_EQ(picture["measured"].size(), 16);
  const json& span = picture["measured"][8];
  EXPECT_EQ(span["rank"], 1);
  EXPECT_EQ(span["action"], "F");
  EXPECT_DOUBLE_EQ(span["start"], 0.0031);
}

TEST(ReportDataTest, LongLossCurvesAreThinnedToTheirEnd) {
  Answer answer;
  LossCurve curve;
  for (int64_t step = 1; step <= 10000; ++step) {
    curve.steps.push_back(step);
    curve.losses.push_back(1.0 / static_cast<double>(step));
  }
  answer.losses = {curve};
  const json data = ReportData(answer)["losses"][0];
  EXPECT_EQ(data["stride"], 5);
  ASSERT_EQ(data["steps"].size(), 2001);
  EXPECT_EQ(data["steps"][1], 6);
  EXPECT_EQ(data["steps"].back(), 10000);
  EXPECT_DOUBLE_EQ(data["losses"].back(), 1e-4);
}

TEST(ReportDataTest, ShortLossCurvesAreWhole) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json data = ReportData(*answer)["losses"][0];
  EXPECT_EQ(data["stride"], 1);
  EXPECT_EQ(data["steps"].size(), 60);
}

TEST(ReportDataTest, WhatIsNotFiniteIsWrittenAsNull) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  answer->losses[0].losses[3] = std::numeric_limits<double>::quiet_NaN();
  const json data = json::parse(ReportData(*answer).dump());
  EXPECT_TRUE(data["losses"][0]["losses"][3].is_null());
  EXPECT_TRUE(
      data["networks"][0]["curves"][0]["segments"][1]["max_bytes"].is_null());
}

TEST(ReportDataTest, AnEmptyAnswerHasEmptyParts) {
  const json data = ReportData(Answer());
  for (const char* part : {"cells", "rows", "series", "ledgers", "waterfalls",
                           "networks", "timelines", "losses", "notes"}) {
    EXPECT_TRUE(data[part].is_array() && data[part].empty()) << part;
  }
}

}  // namespace
}  // namespace rankwise
