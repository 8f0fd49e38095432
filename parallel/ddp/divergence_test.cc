#include "parallel/ddp/divergence.h"

#include <functional>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/test_ranks.h"

namespace rankwise {
namespace {

using testing::HasSubstr;

absl::Status Check(int world_size,
                   const std::function<void(TestNet&, int rank)>& disturb) {
  std::vector<absl::Status> statuses(world_size);
  OnRanks(world_size, [&](Communicator& comm) {
    TestNet net;
    at::NoGradGuard no_grad;
    disturb(net, comm.rank());
    statuses[comm.rank()] = CheckDivergence(net, comm);
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, statuses[0]);
  return statuses[0];
}

TEST(DivergenceTest, EqualParametersAreFine) {
  for (int world_size : {1, 2, 3, 4}) {
    EXPECT_TRUE(Check(world_size, [](TestNet&, int) {}).ok());
  }
}

TEST(DivergenceTest, BuffersMayDiffer) {
  EXPECT_TRUE(
      Check(2, [](TestNet& net, int rank) { net.scale.fill_(rank); }).ok());
}

TEST(DivergenceTest, NamesTheFirstParameterAndTheOddRank) {
  const absl::Status status = Check(4, [](TestNet& net, int rank) {
    if (rank != 2) return;
    net.last->bias[1] += 1e-7;
    net.second->weight[3][4] += 1e-7;
  });
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.ToString(),
              HasSubstr("'second.weight' differs on rank 2 from the other 3 of "
                        "4 ranks"));
}

TEST(DivergenceTest, RankZeroMayBeTheOddOne) {
  EXPECT_THAT(Check(3,
                    [](TestNet& net, int rank) {
                      if (rank == 0) net.first->weight.zero_();
                    })
                  .ToString(),
              HasSubstr("'first.weight' differs on rank 0 from the other 2"));
}

TEST(DivergenceTest, WithoutAMajorityRankZeroIsRight) {
  EXPECT_THAT(
      Check(2, [](TestNet& net, int rank) { net.extra->bias.fill_(rank); })
          .ToString(),
      HasSubstr("'extra.bias' differs on rank 1 from the other 1 of 2"));
  EXPECT_THAT(
      Check(3, [](TestNet& net, int rank) { net.extra->bias.fill_(rank); })
          .ToString(),
      HasSubstr("'extra.bias' differs on rank 1, 2"));
}

TEST(DivergenceTest, NotANumberIsEqualToItself) {
  EXPECT_TRUE(Check(2, [](TestNet& net, int) {
                net.last->bias.fill_(std::nan(""));
              }).ok());
}

}  // namespace
}  // namespace rankwise
