#include "parallel/pipeline/replica_gradients.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

at::Tensor WithGradient(at::Tensor gradient) {
  at::Tensor parameter = at::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(ReplicaGradientsTest, AveragesEachStageInPlace) {
  OnRanks(2, [](Communicator& comm) {
    const double rank = comm.rank();
    const at::Tensor a = WithGradient(at::full({2, 3}, 1 + rank));
    // Laid out channels-last, as convolutions' are.
    const at::Tensor b =
        WithGradient(at::arange(24)
                         .view({1, 2, 3, 4})
                         .to(at::kFloat)
                         .mul(rank)
                         .contiguous(at::MemoryFormat::ChannelsLast));
    const at::Tensor frozen = at::zeros({5});
    ReplicaGradients gradients(comm.process_group(), 2);
    gradients.Start({a, frozen});
    gradients.Start({b});
    gradients.Finish();
    EXPECT_TRUE(a.grad().equal(at::full({2, 3}, 1.5)));
    EXPECT_TRUE(
        b.grad().equal(at::arange(24).view({1, 2, 3, 4}).to(at::kFloat) / 2));
    EXPECT_FALSE(frozen.grad().defined());
  });
}

// As SimpleDataParallel does. The second bucket would not end if ranks had
// exchanged different numbers of bytes in the first.
TEST(ReplicaGradientsTest, AParameterThatOneReplicaDidNotUseCountsAsZeros) {
  OnRanks(2, [](Communicator& comm) {
    const bool uses = comm.rank() == 0;
    const at::Tensor used = WithGradient(at::full({3}, 1. + comm.rank()));
    const at::Tensor half = uses ? WithGradient(at::full({2, 2}, 4.))
                                 : at::zeros({2, 2}).requires_grad_();
    const at::Tensor unused = at::zeros({5}).requires_grad_();
    ReplicaGradients gradients(comm.process_group(), 2);
    gradients.Start({used, half});
    gradients.Start({unused});
    gradients.Finish();
    EXPECT_TRUE(used.grad().equal(at::full({3}, 1.5)));
    EXPECT_TRUE(half.grad().equal(at::full({2, 2}, 2.)));
    EXPECT_TRUE(unused.grad().equal(at::zeros({5})));
  });
}

TEST(BroadcastBuffersTest, GivesEveryReplicaTheFirstOnes) {
  OnRanks(3, [](Communicator& comm) {
    const int rank = comm.rank();
    const at::Tensor mean = at::full({4}, rank + 0.5);
    const at::Tensor batches = at::full({}, 10 + rank, at::kLong);
    BroadcastBuffers(comm.process_group(), {mean, batches});
    EXPECT_TRUE(mean.equal(at::full({4}, 0.5)));
    EXPECT_EQ(batches.item<int64_t>(), 10);
    EXPECT_EQ(BroadcastBuffers(nullptr, {mean}).Wait(), 0);
    EXPECT_EQ(BroadcastBuffers(comm.process_group(), {}).Wait(), 0);
  });
}

TEST(ReplicaGradientsTest, OneReplicaKeepsItsGradients) {
  const at::Tensor a = WithGradient(at::ones({3}));
  ReplicaGradients gradients(nullptr, 1);
  gradients.Start({a});
  EXPECT_EQ(gradients.Finish().Wait(), 0);
  EXPECT_TRUE(a.grad().equal(at::ones({3})));
}

TEST(SharedGradientTest, BothEndWithTheSameSum) {
  at::Tensor results[2];
  OnRanks(2, [&](Communicator& comm) {
    const int rank = comm.rank();
    const at::Tensor weight =
        WithGradient(at::full({4, 5}, rank == 0 ? 0.1 : 0.7));
    AddUpSharedGradient(*comm.process_group(), 1 - rank, /*tag=*/9, weight);
    results[rank] = weight.grad();
  });
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_NEAR(results[0][0][0].item<double>(), 0.8, 1e-6);
}

TEST(SharedGradientTest, AStageThatDidNotUseTheWeightAddsZeros) {
  OnRanks(2, [](Communicator& comm) {
    const at::Tensor weight = comm.rank() == 0
                                  ? WithGradient(at::full({4, 5}, 3.))
                                  : at::zeros({4, 5}).requires_grad_();
    AddUpSharedGradient(*comm.process_group(), 1 - comm.rank(), /*tag=*/9,
                        weight);
    EXPECT_TRUE(weight.grad().equal(at::full({4, 5}, 3.)));
  });
}

}  // namespace
}  // namespace rankwise
