#include "comm_bench/timing/any_stopped.h"

#include <atomic>

#include "gtest/gtest.h"
#include "parallel/comm/rank_threads_for_test.h"

namespace rankwise::comm_bench {
namespace {

TEST(AnyStoppedTest, OneRankIsEnoughAndAllKnow) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const std::atomic<bool> stop = rank.control.rank() == 2;
    const std::atomic<bool> go_on = false;
    EXPECT_TRUE(AnyStopped(rank.control, &stop));
    EXPECT_FALSE(AnyStopped(rank.control, &go_on));
    EXPECT_FALSE(AnyStopped(rank.control, nullptr));
  });
}

}  // namespace
}  // namespace rankwise::comm_bench
