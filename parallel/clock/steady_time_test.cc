#include "parallel/clock/steady_time.h"

#include <chrono>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

TEST(RankClockTest, HostClockIsTheSteadyClockAndKnowsItsHost) {
  const RankClock clock = HostClock();
  const double before = clock.now();
  const double steady = std::chrono::duration<double>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count();
  EXPECT_LE(before, steady);
  EXPECT_GE(clock.now(), steady);
  EXPECT_NE(clock.id, 0);
  EXPECT_EQ(clock.id, HostClock().id);
}

TEST(RankClockTest, WaitsUntilTheTimeOnAnyClock) {
  const RankClock host = HostClock();
  const RankClock shifted{[&host] { return host.now() + 1000; }};
  for (const double seconds : {0.0001, 0.003}) {
    const double until = shifted.now() + seconds;
    WaitUntil(shifted, until);
    EXPECT_GE(shifted.now(), until);
  }
}

TEST(RankClockTest, DoesNotWaitForThePast) {
  const RankClock clock = HostClock();
  const double now = clock.now();
  WaitUntil(clock, now - 1);
  EXPECT_LT(clock.now(), now + 10);
}

TEST(RankClockTest, AThreadInVirtualTimeReadsAndMovesOnlyItsOwn) {
  const double host = HostClock().now();
  {
    VirtualTime time;
    const RankClock clock = HostClock();
    EXPECT_EQ(clock.now(), 0);
    time.Advance(3600);
    EXPECT_EQ(clock.now(), 3600);
    const RankClock shifted{[&clock] { return clock.now() - 2.5; }};
    WaitUntil(shifted, 3600);
    EXPECT_EQ(clock.now(), 3602.5);
    WaitUntil(shifted, 10);
    EXPECT_EQ(clock.now(), 3602.5) << "never goes back";
    EXPECT_EQ(clock.id, HostClock().id) << "one clock for all ranks";
  }
  EXPECT_GE(HostClock().now(), host);
}

}  // namespace
}  // namespace rankwise
