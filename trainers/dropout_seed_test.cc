#include "trainers/dropout_seed.h"

#include <gtest/gtest.h>

#include <set>

namespace rankwise {
namespace {

TEST(DropoutSeedTest, EveryPlaceHasItsOwn) {
  std::set<uint64_t> seeds;
  for (uint64_t run = 0; run < 3; ++run) {
    for (int64_t step = 1; step <= 20; ++step) {
      for (int replica = 0; replica < 4; ++replica) {
        for (int64_t micro_batch = 0; micro_batch < 8; ++micro_batch)
          seeds.insert(DropoutSeed(run, step, replica, micro_batch));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 3u * 20 * 4 * 8);
}

TEST(DropoutSeedTest, DoesNotChangeFromRunToRun) {
  EXPECT_EQ(DropoutSeed(5, 1, 2, 3), DropoutSeed(5, 1, 2, 3));
  static_assert(sizeof(DropoutSeed(0, 0, 0, 0)) == 8);
}

}  // namespace
}  // namespace rankwise
