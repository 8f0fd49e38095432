#include "comm_bench/pair_schedule.h"

#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

void ExpectAllPairsOnce(const std::vector<PairRound>& rounds, int world_size) {
  std::set<std::pair<int, int>> seen;
  for (const PairRound& round : rounds) {
    std::set<int> busy;
    for (const auto& [low, high] : round) {
      EXPECT_GE(low, 0);
      EXPECT_LT(low, high);
      EXPECT_LT(high, world_size);
      EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second);
      EXPECT_TRUE(seen.insert({low, high}).second);
    }
  }
  EXPECT_EQ(seen.size(), world_size * (world_size - 1) / 2u);
}

TEST(PairScheduleTest, AllPairsMeetOnce) {
  for (int world_size : {1, 2, 3, 4, 5, 8, 13}) {
    ExpectAllPairsOnce(PairsOneByOne(world_size), world_size);
    ExpectAllPairsOnce(PairsInRounds(world_size), world_size);
  }
}

TEST(PairScheduleTest, RoundsAreAsFewAsPossible) {
  EXPECT_EQ(PairsInRounds(1).size(), 0);
  EXPECT_EQ(PairsInRounds(2).size(), 1);
  EXPECT_EQ(PairsInRounds(5).size(), 5);
  EXPECT_EQ(PairsInRounds(8).size(), 7);
  EXPECT_EQ(PairsOneByOne(8).size(), 28);
}

}  // namespace
}  // namespace rankwise
