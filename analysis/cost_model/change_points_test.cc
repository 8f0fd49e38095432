#include "analysis/cost_model/change_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace rankwise {
namespace {

using ::testing::ElementsAre;

std::vector<Observation> Points(const std::vector<double>& seconds,
                                double sigma) {
  std::vector<Observation> points;
  double bytes = 8;
  for (const double time : seconds) {
    points.push_back(PointOfLine(bytes, time, sigma));
    bytes *= 2;
  }
  return points;
}

std::vector<double> Steps(const std::vector<std::pair<double, int>>& levels) {
  std::vector<double> seconds;
  for (const auto& [level, count] : levels) {
    seconds.insert(seconds.end(), count, level);
  }
  return seconds;
}

TEST(FindPieces, FindsEveryStep) {
  EXPECT_THAT(FindPieces(Points(Steps({{1, 5}}), 0.01), 3, 3), ElementsAre(0));
  EXPECT_THAT(FindPieces(Points(Steps({{1, 5}, {2, 4}}), 0.01), 3, 3),
              ElementsAre(0, 5));
  EXPECT_THAT(FindPieces(Points(Steps({{1, 5}, {2, 4}, {3, 6}}), 0.01), 3, 3),
              ElementsAre(0, 5, 9));
}

TEST(FindPieces, TakesNoMorePiecesThanAllowed) {
  const auto points = Points(Steps({{1, 5}, {2, 4}, {4, 6}}), 0.01);
  EXPECT_EQ(FindPieces(points, 2, 3).size(), 2u);
  EXPECT_EQ(FindPieces(points, 1, 3).size(), 1u);
}

TEST(FindPieces, OnePointFarOffIsNoPiece) {
  std::vector<double> seconds = Steps({{1, 15}});
  for (size_t i = 0; i < seconds.size(); ++i) {
    std::vector<double> one_off = seconds;
    one_off[i] = 5;
    EXPECT_THAT(FindPieces(Points(one_off, 0.01), 3, 3), ElementsAre(0)) << i;
  }
}

TEST(FindPieces, AStepWithinTheErrorIsNone) {
  EXPECT_THAT(FindPieces(Points(Steps({{1, 5}, {1.02, 5}}), 0.02), 3, 3),
              ElementsAre(0));
}

TEST(FindPieces, TooFewPointsForTwoPiecesAreOne) {
  EXPECT_THAT(FindPieces(Points({1, 1, 9, 9, 9}, 0.01), 3, 3), ElementsAre(0));
}

TEST(LocalSpread, IsTheDeviationFromALineWhateverItsSlope) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<Observation> points;
  for (int i = 0; i < 4000; ++i) {
    const double bytes = 1000 + 10.0 * i;
    points.push_back(PointOfLine(
        bytes,
        (5 + bytes * 0.01) * (1 + std::hypot(0.03, 0.04) * normal(random)),
        0.04));
  }
  EXPECT_NEAR(LocalSpread(points), 0.03, 0.004);
}

TEST(LocalSpread, IsZeroOnALineAndForTwoPoints) {
  EXPECT_EQ(LocalSpread(Points({1, 1, 1, 1, 1}, 0.01)), 0);
  EXPECT_EQ(LocalSpread(Points({1, 5}, 0.01)), 0);
}

TEST(LocalSpread, AChangeDoesNotCount) {
  EXPECT_LT(LocalSpread(Points(Steps({{1, 6}, {3, 6}}), 0.01)), 0.01);
}

}  // namespace
}  // namespace rankwise
