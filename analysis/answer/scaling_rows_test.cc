#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "analysis/answer/answer.h"

namespace rankwise {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A series from a base on one rank, with these speedups on 2, 4, 8, ... ranks.
// The throughputs of `runs` repetitions deviate by `spread` from the true
// value: randomly if `noise` is given, otherwise evenly spaced.
struct Made {
  explicit Made(const std::vector<double>& speedups,
                Scaling scaling = Scaling::kStrong, double spread = 0.003,
                int runs = 5, std::mt19937_64* noise = nullptr) {
    cells.resize(speedups.size() + 1);
    rows.resize(speedups.size());
    series.scaling = scaling;
    const auto run = [&](Cell& cell, double speedup) {
      for (int i = 0; i < runs; ++i) {
        const double by = noise == nullptr
                              ? 2.0 * i / std::max(1, runs - 1) - 1
                              : std::normal_distribution<double>()(*noise);
        cell.repetitions.emplace_back().examples_per_second =
            speedup * std::exp(spread * by);
      }
    };
    run(cells[0], 1);
    for (size_t i = 0; i < speedups.size(); ++i) {
      Cell& cell = cells[i + 1];
      cell.run.world_size = int64_t{2} << i;
      run(cell, speedups[i]);
      const Ratio ratio =
          RatioOf(cell.Values(&Throughput::examples_per_second),
                  cells[0].Values(&Throughput::examples_per_second));
      Efficiency efficiency;
      efficiency.speedup = ratio.value;
      efficiency.speedup_interval = ratio.interval;
      rows[i] = {&cell, "strong", &cells[0], efficiency};
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
}

TEST(SerialFraction, IsConstantIfItsChangeIsKnownToBeSmall) {
  const Made made({Amdahl(0.3, 2), Amdahl(0.3, 4), Amdahl(0.3, 8)});
  EXPECT_EQ(SerialTrend(made.series),
            "goes from 30.0 % on 2 ranks to 30.0 % on 8, a change of less than "
            "25.0 % of it: consistent with serial work");
}

TEST(SerialFraction, AnUndetectedChangeIsNotSerialWork) {
  // The fraction doubles from 2 to 8 ranks, but noise hides it.
  const Made made({Amdahl(0.05, 2), Amdahl(0.07, 4), Amdahl(0.10, 8)},
                  Scaling::kStrong, 0.05);
  EXPECT_EQ(SerialTrend(made.series),
            "goes from 5.0 % on 2 ranks to 10.0 % on 8: the runs vary too much "
            "to say whether it changes; add --repetitions");
}

TEST(SerialFraction, OverheadThatGrowsRises) {
  const Made made({Amdahl(0.02, 2), Amdahl(0.06, 4), Amdahl(0.14, 8)});
  EXPECT_EQ(SerialTrend(made.series),
            "rises from 2.0 % on 2 ranks to 14.0 % on 8: overhead that grows "
            "with the ranks, not work that stays serial");
}

TEST(SerialFraction, ALossOfTheFirstRanksFalls) {
  const Made made({Amdahl(0.30, 2), Amdahl(0.1, 4)});
  EXPECT_THAT(SerialTrend(made.series),
              StartsWith("falls from 30.0 % on 2 ranks to 10.0 % on 4"));
}

// Returns the percentage of simulated studies that print each trend. `first`
// and `last` are the serial fractions on 2 and 8 ranks; the throughputs of the
// five runs vary by `spread`.
std::map<std::string, double> Trends(double first, double last, double spread) {
  constexpr int kStudies = 1000;
  std::mt19937_64 random(1);
  std::map<std::string, double> percent;
  for (int i = 0; i < kStudies; ++i) {
    const Made made({Amdahl(first, 2), Amdahl(last, 4), Amdahl(last, 8)},
                    Scaling::kStrong, spread, 5, &random);
    const std::string trend = SerialTrend(made.series);
    const bool cannot_say = absl::StrContains(trend, "vary too much");
    percent[cannot_say ? "cannot say" : trend.substr(0, trend.find(' '))] +=
        100.0 / kStudies;
  }
  std::cout << first << " to " << last << ", spread " << spread << ":";
  for (const auto& [trend, share] : percent) {
    std::cout << " " << trend << " " << share << " %";
  }
  std::cout << "\n";
  return percent;
}

TEST(SerialFraction, TrendsAreRightInNinetyFivePercent) {
  for (double spread : {0.003, 0.01, 0.03}) {
    for (double serial : {0.05, 0.3}) {
      auto stays = Trends(serial, serial, spread);
      EXPECT_LE(stays["rises"] + stays["falls"], 7);
      // A change by a quarter is the smallest that is not called constant.
      EXPECT_LE(Trends(serial, 1.25 * serial, spread)["goes"], 5);
      EXPECT_LE(Trends(serial, 0.75 * serial, spread)["goes"], 5);
    }
  }
  EXPECT_GE(Trends(0.3, 0.3, 0.01)["goes"], 80);
  EXPECT_GE(Trends(0.05, 0.1, 0.01)["rises"], 80);
}

TEST(SerialFraction, HasNoTrendOfOneSizeOrOfOneRun) {
  EXPECT_EQ(SerialTrend(Made({1.8}).series), "");
  const Made made({1.8, 3.0}, Scaling::kStrong, 0, 1);
  EXPECT_TRUE(std::isnan(SerialFractionsOf(made.series)[1].interval.low));
  EXPECT_EQ(SerialTrend(made.series), "");
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
