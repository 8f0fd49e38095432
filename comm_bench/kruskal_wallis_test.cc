#include "comm_bench/kruskal_wallis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace rankwise::comm_bench {
namespace {

using Samples = std::vector<std::vector<double>>;

std::vector<double> Normal(std::mt19937_64& random, int n, double mean) {
  std::normal_distribution<double> distribution(mean, 1);
  std::vector<double> values(n);
  for (double& value : values) value = distribution(random);
  return values;
}

std::vector<double> Consecutive(double first, int n) {
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(KruskalWallis, IsSmallestWhereSamplesDoNotOverlap) {
  EXPECT_EQ(
      KruskalWallisPValue(Samples{Consecutive(1, 20), Consecutive(101, 20)}),
      0.005);
}

TEST(KruskalWallis, IsOneWhereSamplesAreEqual) {
  EXPECT_EQ(KruskalWallisPValue(Samples{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}), 1);
  EXPECT_EQ(KruskalWallisPValue(Samples{{5, 5, 5}, {5, 5}}), 1);
}

// Of two against two values there are six assignments, of which two are as
// extreme as the one observed.
TEST(KruskalWallis, CountsAssignmentsAsExtreme) {
  EXPECT_NEAR(KruskalWallisPValue(Samples{{1, 2}, {3, 4}}), 1.0 / 3, 0.1);
}

TEST(KruskalWallis, RejectsAboutAsOftenAsItSays) {
  std::mt19937_64 random(1);
  int rejected = 0;
  for (int i = 0; i < 200; ++i) {
    const Samples samples = {Normal(random, 20, 0), Normal(random, 30, 0),
                             Normal(random, 20, 0)};
    if (KruskalWallisPValue(samples) <= 0.05) ++rejected;
  }
  EXPECT_GE(rejected, 2);
  EXPECT_LE(rejected, 22);
}

TEST(KruskalWallis, FindsAShift) {
  std::mt19937_64 random(1);
  EXPECT_LE(
      KruskalWallisPValue(Samples{Normal(random, 50, 0), Normal(random, 50, 0),
                                  Normal(random, 50, 1)}),
      0.01);
}

TEST(KruskalWallis, NeedsTwoSamples) {
  EXPECT_TRUE(std::isnan(KruskalWallisPValue({})));
  EXPECT_TRUE(std::isnan(KruskalWallisPValue(Samples{{1, 2, 3}})));
}

}  // namespace
}  // namespace rankwise::comm_bench
