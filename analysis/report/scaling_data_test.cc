#include "analysis/report/scaling_data.h"

#include <memory>

#include "absl/status/status.h"
#include "analysis/answer/answer.h"
#include "analysis/report/answer_for_test.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::nlohmann::json;

TEST(RowsDataTest, ARefusedRowSaysWhy) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json rows = RowsData(*answer);
  ASSERT_EQ(rows.size(), answer->rows.size());
  EXPECT_EQ(rows.back()["refusal"], "the batch per rank differs: 64 and 32");
  EXPECT_TRUE(rows.back()["efficiency"].is_null());
  EXPECT_EQ(rows[0]["scaling"], "base");
  EXPECT_EQ(rows[0]["refusal"], "");
  EXPECT_TRUE(rows[0]["base"].is_null());
}

TEST(RowsDataTest, FiguresAreThoseOfTheAnswer) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  answer->rows[1].efficiency->warning = "forced";
  const json row = RowsData(*answer)[1];
  const Efficiency& efficiency = *answer->rows[1].efficiency;
  EXPECT_EQ(row["efficiency"]["speedup"], efficiency.speedup);
  EXPECT_EQ(row["efficiency"]["efficiency_interval"],
            (json{efficiency.efficiency_interval.low,
                  efficiency.efficiency_interval.high}));
  EXPECT_EQ(row["efficiency"]["warning"], "forced");
}

TEST(SeriesDataTest, LawsAreDrawnToTwiceTheLargestSize) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json series = SeriesData(*answer);
  const json& law = series[3]["laws"][0];
  EXPECT_EQ(law["name"], ScalingLawName(ScalingLaw::kGustafson));
  EXPECT_EQ(law["ranks"].front(), 1);
  EXPECT_DOUBLE_EQ(law["ranks"].back(), 16);
  EXPECT_DOUBLE_EQ(law["speedups"].back(),
                   answer->series[3].laws[0].Speedup(16));
}

TEST(SeriesDataTest, ALawCountsInUnitsOfItsBase) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  Cell base = answer->cells[3];  // 2 ranks
  for (ScalingRow& row : answer->rows) {
    if (row.base != nullptr) row.base = &base;
  }
  const json series = SeriesData(*answer)[3];
  EXPECT_EQ(series["base_ranks"], 2);
  const json& law = series["laws"][0];
  EXPECT_DOUBLE_EQ(law["ranks"].back(), 16);
  EXPECT_DOUBLE_EQ(law["speedups"].back(),
                   answer->series[3].laws[0].Speedup(8));
}

TEST(LedgersDataTest, PartsAddUpToTheStep) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json ledger = LedgersData(*answer)[2];
  double sum = 0;
  for (const json& part : ledger["critical"]) sum += part.get<double>();
  EXPECT_DOUBLE_EQ(sum, answer->ledgers[2].ledger.critical.Total());
  EXPECT_EQ(ledger["ranks"].size(), 2);
}

TEST(WaterfallsDataTest, CausesHaveNamesAndRemedies) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json loss = WaterfallsData(*answer)[0]["losses"][0];
  EXPECT_EQ(loss["cause"], LossName(LossCause::kSmallerBatch));
  EXPECT_EQ(loss["remedy"], Remedy(LossCause::kSmallerBatch));
}

TEST(AblationsDataTest, NamesBothCells) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json ablation = AblationsData(*answer)[0];
  EXPECT_EQ(ablation["cell"], 3);
  EXPECT_EQ(ablation["without"], 1);
  EXPECT_DOUBLE_EQ(ablation["disagreement"], -0.042);
}

}  // namespace
}  // namespace rankwise
