#include "analysis/plan/link_run.h"

#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

TEST(LinkRunTest, ComputingIsSlowerWhileACallIsInFlight) {
  LinkRun run(/*speed_during_communication=*/0.25);
  EXPECT_DOUBLE_EQ(run.Start(4), 4);
  run.Compute(0.5);
  EXPECT_DOUBLE_EQ(run.now(), 2);
  // Half of it in the 2 s that are left.
  run.Compute(1);
  EXPECT_DOUBLE_EQ(run.now(), 4.5);
  EXPECT_DOUBLE_EQ(run.exposed(), 3);
  EXPECT_DOUBLE_EQ(run.Start(1), 5.5);
  EXPECT_DOUBLE_EQ(run.Start(1), 6.5);
  run.WaitForAll();
  EXPECT_DOUBLE_EQ(run.exposed(), 5);
}

}  // namespace
}  // namespace rankwise::plan
