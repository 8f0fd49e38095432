#include "parallel/comm/slurm.h"

#include "gtest/gtest.h"

namespace rankwise {
namespace {

TEST(SlurmTest, FindsTheFirstHostOfANodeList) {
  EXPECT_EQ(FirstOfNodeList("node1"), "node1");
  EXPECT_EQ(FirstOfNodeList("node1,node2"), "node1");
  EXPECT_EQ(FirstOfNodeList("gpu[07-09,12],login1"), "gpu07");
  EXPECT_EQ(FirstOfNodeList("gpu[3,5]"), "gpu3");
  EXPECT_EQ(FirstOfNodeList("a-[1-2]-ib"), "a-1-ib");
  EXPECT_EQ(FirstOfNodeList("rack[1-2]n[04-08]"), "rack1n04");
  EXPECT_EQ(FirstOfNodeList("gpu[07"), "");
  EXPECT_EQ(FirstOfNodeList(""), "");
}

TEST(SlurmTest, FindsAnEntryOfACountList) {
  EXPECT_EQ(EntryOfCountList("4", 0), 4);
  EXPECT_EQ(EntryOfCountList("4(x2),3", 0), 4);
  EXPECT_EQ(EntryOfCountList("4(x2),3", 1), 4);
  EXPECT_EQ(EntryOfCountList("4(x2),3", 2), 3);
  EXPECT_EQ(EntryOfCountList("4(x2),3", 3), std::nullopt);
  EXPECT_EQ(EntryOfCountList("4(x", 0), std::nullopt);
  EXPECT_EQ(EntryOfCountList("4(xx)", 0), std::nullopt);
  EXPECT_EQ(EntryOfCountList("", 0), std::nullopt);
}

}  // namespace
}  // namespace rankwise
