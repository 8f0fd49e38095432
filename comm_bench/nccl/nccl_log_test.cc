#include "comm_bench/nccl/nccl_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Written after the format strings of NCCL 2.28.9.
constexpr char kLog[] =
    "gpu-3:4711:4712 [0] NCCL INFO NCCL_DEBUG_SUBSYS set by environment to "
    "TUNING\n"
    "gpu-3:4711:4712 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto "
    "SIMPLE channel{Lo..Hi}={0..31}\n"
    "gpu-3:4711:4712 [0] NCCL INFO         AllReduce |           LL |\n"
    "gpu-3:4711:4712 [0] NCCL INFO AllGather: 8 Bytes -> Algo NVLS_TREE proto "
    "LL128 channel{Lo..Hi}={0..0}\n"
    "gpu-3:4711:4712 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel "
    "AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1\n";

TEST(NcclLogTest, FindsEveryChoice) {
  EXPECT_THAT(ParseNcclLog(kLog),
              ElementsAre(NcclChoice{"AllReduce", 1048576, "RING", "SIMPLE"},
                          NcclChoice{"AllGather", 8, "NVLS_TREE", "LL128"},
                          NcclChoice{"AllReduce", 4096, "SYMMETRIC",
                                     "AllReduce_AGxLL_R"}));
}

TEST(NcclLogTest, LinesThatAreCutOrOfSomethingElseMeanNothing) {
  EXPECT_THAT(ParseNcclLog(""), IsEmpty());
  EXPECT_THAT(ParseNcclLog("x:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo"),
              IsEmpty());
  EXPECT_THAT(ParseNcclLog("x:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo "
                           "RING proto"),
              IsEmpty());
  EXPECT_THAT(ParseNcclLog("AllReduce: 8 Bytes -> Algo RING proto LL"),
              IsEmpty())
      << "not from NCCL";
  EXPECT_THAT(ParseNcclLog("x:1:1 [0] NCCL INFO AllReduce: many Bytes -> Algo "
                           "RING proto LL channel"),
              IsEmpty());
}

TEST(NcclLogTest, CallsThatAgreeHaveOneName) {
  const NcclChoice ring = {"AllReduce", 8, "RING", "LL"};
  const NcclChoice tree = {"AllReduce", 8, "TREE", "LL"};
  EXPECT_EQ(NamesOf({}).algorithm, "");
  EXPECT_EQ(NamesOf({ring, ring}).algorithm, "RING");
  EXPECT_EQ(NamesOf({ring, tree, ring}).algorithm, "RING,TREE");
  EXPECT_EQ(NamesOf({ring, tree}).protocol, "LL");
}

}  // namespace
}  // namespace rankwise::comm_bench
