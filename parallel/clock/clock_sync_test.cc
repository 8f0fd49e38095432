#include "parallel/clock/clock_sync.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

RankClock Shifted(double seconds) {
  return {[seconds] { return HostClock().now() + seconds; }};
}

TEST(ClockSyncTest, RanksOfOneHostShareItsClock) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const ClockSync sync(rank.control, HostClock());
    EXPECT_EQ(sync.error_seconds(), 0);
    EXPECT_EQ(sync.RootTime(7.5), 7.5);
  });
}

TEST(ClockSyncTest, OffsetsAreKnownUpToTheirBound) {
  const std::vector<double> shifts = {5, -300, 1e4};
  OnFakeRanks(3, {}, [&](FakeRank& rank) {
    const int own = rank.control.rank();
    ClockSync sync(rank.control, Shifted(shifts[own]));
    sync.Update();
    const double offset = sync.RootTime(0);
    EXPECT_LE(std::abs(offset - (shifts[0] - shifts[own])),
              sync.error_seconds() + 1e-9);
    EXPECT_EQ(sync.error_seconds() == 0, own == 0);
    EXPECT_LT(sync.error_seconds(), 1);
    EXPECT_NEAR(sync.OwnTime(sync.RootTime(42)), 42, 1e-9);
  });
}

TEST(ClockSyncTest, TheBoundGrowsUntilTheNextUpdate) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    double now = 0;
    ClockSync sync(rank.control, {[&now] { return now += 1e-6; }});
    if (rank.control.rank() == 0) {
      sync.Update();
      return;
    }
    const double fresh = sync.error_seconds();
    now += 100;
    EXPECT_NEAR(sync.error_seconds(), fresh + 5e-3, 1e-6);
    sync.Update();
    EXPECT_LT(sync.error_seconds(), 1e-4);
  });
}

TEST(ClockSyncTest, OneProcessKeepsItsOwn) {
  const ClockSync clock(nullptr);
  EXPECT_EQ(clock.RootTime(12.5), 12.5);
  EXPECT_EQ(clock.error_seconds(), 0);
}

TEST(ClockSyncTest, RanksOfOneHostShareOneClock) {
  OnRanks(2, [](Communicator& comm) {
    const ClockSync clock(&comm);
    EXPECT_EQ(clock.RootTime(12.5), 12.5);
    EXPECT_EQ(clock.error_seconds(), 0);
  });
}

}  // namespace
}  // namespace rankwise
