#include "parallel/ddp/gradient_sync.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "parallel/comm/test_ranks.h"

namespace rankwise {
namespace {

at::Tensor WithGradient(at::Tensor gradient) {
  at::Tensor parameter = at::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(AllReduceSyncTest, AveragesEachStageInPlace) {
  OnRanks(2, [](Communicator& comm) {
    const double rank = comm.rank();
    const at::Tensor a = WithGradient(at::full({2, 3}, 1 + rank));
    // In channels-last format, like convolution gradients.
    const at::Tensor b =
        WithGradient(at::arange(24)
                         .view({1, 2, 3, 4})
                         .to(at::kFloat)
                         .mul(rank)
                         .contiguous(at::MemoryFormat::ChannelsLast));
    const at::Tensor frozen = at::zeros({5});
    AllReduceSync gradients(comm.world());
    gradients.Start({a, frozen});
    gradients.Start({b});
    gradients.Finish();
    EXPECT_TRUE(a.grad().equal(at::full({2, 3}, 1.5)));
    EXPECT_TRUE(
        b.grad().equal(at::arange(24).view({1, 2, 3, 4}).to(at::kFloat) / 2));
    EXPECT_FALSE(frozen.grad().defined());
  });
}

// The second bucket would hang if ranks had exchanged different numbers of
// bytes in the first.
TEST(AllReduceSyncTest, AParameterThatOneReplicaDidNotUseCountsAsZeros) {
  OnRanks(2, [](Communicator& comm) {
    const bool uses = comm.rank() == 0;
    const at::Tensor used = WithGradient(at::full({3}, 1. + comm.rank()));
    const at::Tensor half = uses ? WithGradient(at::full({2, 2}, 4.))
                                 : at::zeros({2, 2}).requires_grad_();
    const at::Tensor unused = at::zeros({5}).requires_grad_();
    AllReduceSync gradients(comm.world());
    gradients.Start({used, half});
    gradients.Start({unused});
    gradients.Finish();
    EXPECT_TRUE(used.grad().equal(at::full({3}, 1.5)));
    EXPECT_TRUE(half.grad().equal(at::full({2, 2}, 2.)));
    EXPECT_TRUE(unused.grad().equal(at::zeros({5})));
  });
}

TEST(AllReduceSyncTest, OneReplicaKeepsItsGradients) {
  const at::Tensor a = WithGradient(at::ones({3}));
  AllReduceSync gradients{Group()};
  gradients.Start({a});
  EXPECT_EQ(gradients.Finish().Wait(), 0);
  EXPECT_TRUE(a.grad().equal(at::ones({3})));
}

// at::cat would have promoted them to one dtype.
TEST(AllReduceSyncTest, DtypesAreReducedApart) {
  OnRanks(2, [](Communicator& comm) {
    const double rank = comm.rank();
    const at::Tensor a = WithGradient(at::full({3}, 1 + rank));
    const at::Tensor b = WithGradient(at::full({2}, 3 + rank, at::kBFloat16));
    AllReduceSync gradients(comm.world());
    gradients.Start({a, b});
    EXPECT_GT(gradients.Finish().Wait(), 0);
    EXPECT_TRUE(a.grad().equal(at::full({3}, 1.5)));
    EXPECT_TRUE(b.grad().equal(at::full({2}, 3.5, at::kBFloat16)));
  });
}

}  // namespace
}  // namespace rankwise
