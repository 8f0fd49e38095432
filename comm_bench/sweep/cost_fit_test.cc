#include "comm_bench/sweep/cost_fit.h"

#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using testing::HasSubstr;

// On the line 50 us + 0.25 ns/B, from 8 B to 64 MiB.
std::vector<CostPoint> Exact() {
  std::vector<CostPoint> points;
  for (double bytes = 8; bytes <= 1 << 26; bytes *= 8) {
    points.push_back({bytes, 50e-6 + 0.25e-9 * bytes});
  }
  return points;
}

TEST(CostFitTest, GivesBackALine) {
  const auto fit = FitCost(Exact());
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->alpha_seconds, 50e-6, 1e-12);
  EXPECT_NEAR(fit->beta_seconds_per_byte, 0.25e-9, 1e-18);
  EXPECT_NEAR(fit->median_relative_error, 0, 1e-9);
  EXPECT_NEAR(fit->SecondsFor(1e6), 300e-6, 1e-11);
}

TEST(CostFitTest, OutliersDoNotMoveIt) {
  std::vector<CostPoint> points = Exact();
  points[0].seconds *= 20;
  points[3].seconds *= 5;
  points.back().seconds *= 3;
  const auto fit = FitCost(points);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->alpha_seconds, 50e-6, 1e-12);
  EXPECT_NEAR(fit->beta_seconds_per_byte, 0.25e-9, 1e-18);
}

TEST(CostFitTest, NoiseIsRelative) {
  std::vector<CostPoint> points = Exact();
  double sign = 1;
  for (CostPoint& point : points) {
    point.seconds *= 1 + 0.02 * sign;
    sign = -sign;
  }
  const auto fit = FitCost(points);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->alpha_seconds, 50e-6, 1.5e-6);
  EXPECT_NEAR(fit->beta_seconds_per_byte, 0.25e-9, 0.0075e-9);
}

TEST(CostFitTest, NeitherPartIsNegative) {
  auto falling = FitCost(std::vector<CostPoint>{{1, 3}, {2, 2}, {3, 1}});
  ASSERT_TRUE(falling.ok()) << falling.status();
  EXPECT_EQ(falling->beta_seconds_per_byte, 0);
  EXPECT_GT(falling->alpha_seconds, 0);

  auto steep = FitCost(std::vector<CostPoint>{{10, 1}, {20, 4}, {30, 7}});
  ASSERT_TRUE(steep.ok()) << steep.status();
  EXPECT_EQ(steep->alpha_seconds, 0);
  EXPECT_GT(steep->beta_seconds_per_byte, 0);
}

TEST(CostFitTest, TakesThreeSizesWithTimes) {
  for (const std::vector<CostPoint>& points :
       {std::vector<CostPoint>{},
        std::vector<CostPoint>{{8, 1}, {8, 2}, {16, 3}},
        std::vector<CostPoint>{{8, 1}, {16, 3}, {32, 0}}}) {
    const auto fit = FitCost(points);
    EXPECT_EQ(fit.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(fit.status().message(), HasSubstr("at least 3"));
  }
}

TEST(CostFitTest, ReadsAsText) {
  EXPECT_EQ(FormatCostFit({45.2e-6, 0.25e-9, 0.031}),
            "alpha 45.20 us, beta 0.25 ns/B (4 GB/s), median error 3.1 %");
  EXPECT_EQ(FormatCostFit({45.2e-6, 0, 0}),
            "alpha 45.20 us, beta 0 ns/B, median error 0.0 %");
}

}  // namespace
}  // namespace rankwise::comm_bench
