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
    const at::Tensor unused = at::zeros({5}).requires_grad_();
    ReplicaGradients gradients(comm.process_group(), 2);
    gradients.Start({a, unused});
    gradients.Start({b});
    gradients.Finish();
    EXPECT_TRUE(a.grad().equal(at::full({2, 3}, 1.5)));
    EXPECT_TRUE(
        b.grad().equal(at::arange(24).view({1, 2, 3, 4}).to(at::kFloat) / 2));
    EXPECT_FALSE(unused.grad().defined());
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
    at::Tensor gradient = at::full({4, 5}, rank == 0 ? 0.1 : 0.7);
    AddUpSharedGradient(*comm.process_group(), 1 - rank, /*tag=*/9, gradient);
    results[rank] = gradient;
  });
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_NEAR(results[0][0][0].item<double>(), 0.8, 1e-6);
}

}  // namespace
}  // namespace rankwise
