#include "comm_bench/timing/warm_up.h"

#include <vector>

#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

TEST(WarmUpTest, IsStableWhenFiveTakeAsLongAsTheFiveBefore) {
  EXPECT_TRUE(IsStable({10, 10, 10, 10, 10, 9.5, 9.5, 9.5, 9.5, 9.5}));
  EXPECT_TRUE(IsStable({10, 10, 10, 10, 10, 10.5, 10.5, 10.5, 10.5, 99}));
  EXPECT_TRUE(IsStable({99, 99, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}));
}

TEST(WarmUpTest, IsNotStableWhileTimesFallOrRise) {
  EXPECT_FALSE(IsStable({10, 10, 10, 10, 10, 8, 8, 8, 8, 8}));
  EXPECT_FALSE(IsStable({10, 10, 10, 10, 10, 12, 12, 12, 12, 12}));
}

TEST(WarmUpTest, IsNotStableOnTooLittle) {
  EXPECT_FALSE(IsStable({}));
  EXPECT_FALSE(IsStable({10, 10, 10, 10, 10, 10, 10, 10, 10}));
}

}  // namespace
}  // namespace rankwise::comm_bench
