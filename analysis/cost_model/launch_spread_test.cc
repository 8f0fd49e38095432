#include "analysis/cost_model/launch_spread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace rankwise {
namespace {

TEST(SpreadOfLaunches, IsTheErrorOfTheirMean) {
  std::vector<CostSamples> samples;
  for (const double bytes : {8.0, 64.0, 512.0}) {
    int64_t launch = 0;
    for (const double shift : {-0.1, 0.0, 0.1}) {
      samples.push_back({bytes, {bytes * std::exp(shift)}, launch++});
    }
  }
  const LaunchSpread spread = SpreadOfLaunches(samples);
  EXPECT_NEAR(spread.relative_error, 0.1 / std::sqrt(3), 1e-9);
  EXPECT_EQ(spread.degrees_of_freedom, 2);
}

TEST(SpreadOfLaunches, OneSizeFarOffDoesNotCount) {
  std::vector<CostSamples> samples;
  for (const double bytes : {8.0, 64.0, 512.0}) {
    for (const int64_t launch : {0, 1, 2}) {
      const double far_off = bytes == 64 && launch == 1 ? 10 : 1;
      samples.push_back({bytes, {far_off * bytes}, launch});
    }
  }
  EXPECT_NEAR(SpreadOfLaunches(samples).relative_error, 0, 1e-12);
}

TEST(SpreadOfLaunches, OneLaunchDoesNotTell) {
  const LaunchSpread one = SpreadOfLaunches({{8, {1, 2}}, {8, {5}}, {64, {3}}});
  EXPECT_EQ(one.relative_error, 0);
  // Two that share no size.
  EXPECT_EQ(SpreadOfLaunches({{8, {1}, 0}, {64, {3}, 1}}).relative_error, 0);
}

TEST(DrawLaunchFactor, IsSpreadByTheError) {
  std::mt19937_64 random(1);
  double squares = 0;
  for (int i = 0; i < 20000; ++i) {
    squares += std::pow(std::log(DrawLaunchFactor({0.1, 30}, random)), 2);
  }
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.1 * std::sqrt(30.0 / 28), 0.003);
  EXPECT_EQ(DrawLaunchFactor({}, random), 1);
}

}  // namespace
}  // namespace rankwise
