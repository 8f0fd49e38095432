#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "analysis/answer/answer.h"

namespace rankwise {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A series over one rank with these speedups on 2, 4, 8, ... ranks, known
// within 1 %.
struct Made {
  explicit Made(const std::vector<double>& speedups,
                Scaling scaling = Scaling::kStrong) {
    cells.resize(speedups.size() + 1);
    rows.resize(speedups.size());
    series.scaling = scaling;
    for (size_t i = 0; i < speedups.size(); ++i) {
      cells[i + 1].run.world_size = int64_t{2} << i;
      Efficiency efficiency;
      efficiency.speedup = speedups[i];
      efficiency.speedup_interval = {0.99 * speedups[i], 1.01 * speedups[i]};
      rows[i] = {&cells[i + 1], "strong", &cells[0], efficiency};
      series.rows.push_back(&rows[i]);
    }
  }

  std::vector<Cell> cells;  // the base first
  std::vector<ScalingRow> rows;
  ScalingSeries series;
};

double Amdahl(double serial, double ranks) {
  return 1 / (serial + (1 - serial) / ranks);
}

TEST(SerialFraction, IsAmdahlsWhereHisLawHolds) {
  const Made made({Amdahl(0.05, 2), Amdahl(0.05, 4), Amdahl(0.05, 8)});
  const auto fractions = SerialFractionsOf(made.series);
  ASSERT_THAT(fractions, SizeIs(3));
  for (const SerialFraction& one : fractions) {
    EXPECT_NEAR(one.value, 0.05, 1e-12);
    EXPECT_LT(one.interval.low, one.value);
    EXPECT_GT(one.interval.high, one.value);
  }
  EXPECT_EQ(fractions[2].world_size, 8);
  EXPECT_THAT(SerialTrend(fractions),
              StartsWith("goes from 5.0 % on 2 ranks to 5.0 % on 8, which is "
                         "no change beyond the intervals"));
}

TEST(SerialFraction, OverheadThatGrowsRises) {
  const Made made({Amdahl(0.02, 2), Amdahl(0.06, 4), Amdahl(0.14, 8)});
  EXPECT_EQ(SerialTrend(SerialFractionsOf(made.series)),
            "rises from 2.0 % on 2 ranks to 14.0 % on 8: overhead that grows "
            "with the ranks, not work that stays serial");
}

TEST(SerialFraction, ALossOfTheFirstRanksFalls) {
  const Made made({Amdahl(0.30, 2), Amdahl(0.1, 4)});
  EXPECT_THAT(SerialTrend(SerialFractionsOf(made.series)),
              StartsWith("falls from 30.0 % on 2 ranks to 10.0 % on 4"));
}

TEST(SerialFraction, TellsNoTrendOfOneSizeOrWithoutIntervals) {
  EXPECT_EQ(SerialTrend(SerialFractionsOf(Made({1.8}).series)), "");
  Made made({1.8, 3.0});
  made.rows[1].efficiency->speedup_interval = {std::nan(""), std::nan("")};
  const auto fractions = SerialFractionsOf(made.series);
  EXPECT_TRUE(std::isnan(fractions[1].interval.low));
  EXPECT_EQ(SerialTrend(fractions), "");
}

TEST(SerialFraction, IsMeantForStrongScaling) {
  EXPECT_THAT(SerialFractionsOf(Made({1.8, 3.0}, Scaling::kWeak).series),
              IsEmpty());
}

TEST(SerialFraction, CountsRanksInUnitsOfTheBases) {
  Made made({1.9, 3.6});
  made.cells[0].run.world_size = 2;
  const auto fractions = SerialFractionsOf(made.series);
  ASSERT_THAT(fractions, SizeIs(1));
  EXPECT_EQ(fractions[0].world_size, 4);
  EXPECT_DOUBLE_EQ(fractions[0].value, KarpFlatt(3.6, 2));
}

}  // namespace
}  // namespace rankwise
