#include "parallel/comm/job_clock.h"

#include <gtest/gtest.h>

#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

TEST(JobClockTest, OneProcessKeepsItsOwn) {
  const JobClock clock(nullptr);
  EXPECT_EQ(clock.RootTime(12.5), 12.5);
  EXPECT_EQ(clock.error_seconds(), 0);
}

TEST(JobClockTest, RanksOfOneHostShareOneClock) {
  OnRanks(2, [](Communicator& comm) {
    const JobClock clock(&comm);
    EXPECT_EQ(clock.RootTime(12.5), 12.5);
    EXPECT_EQ(clock.error_seconds(), 0);
  });
}

}  // namespace
}  // namespace rankwise
