#include "parallel/ddp/sync_batch_norm_function.h"

#include <string>

#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/ddp/sync_batch_norm_cases.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using SyncBatchNormFunctionTest = testing::TestWithParam<int>;

TEST_P(SyncBatchNormFunctionTest, EqualsBatchNormOfTheWholeBatch) {
  OnRanks(GetParam(), [&](Communicator& comm) {
    for (const NormCase& c : NormCases(GetParam())) {
      ExpectSame(c, NormalizeShare(c, comm),
                 NormalizeWhole(c, comm.rank(), comm.device()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SyncBatchNormFunctionTest,
                         testing::Values(1, 2, 4));

TEST(SyncBatchNormFunctionTest, ABatchOfOneValueHasNoVariance) {
  OnRanks(2, [](Communicator& comm) {
    const SyncedBatch batch = SyncBatchNormForward(
        at::ones({comm.rank(), 3}), {}, {}, 1e-5, comm.process_group());
    EXPECT_EQ(batch.moments.unbiased_variance.abs().max().item<double>(), 0);
    EXPECT_EQ(batch.moments.count.item<double>(), 1);
  });
}

TEST(SyncBatchNormFunctionTest, RefusesWhatItCannotNormalise) {
  OnRanks(1, [](Communicator& comm) {
    const auto error = [&](const at::Tensor& x, const at::Tensor& weight = {}) {
      return ErrorOf([&] {
        SyncBatchNormForward(x, weight, {}, 1e-5, comm.process_group());
      });
    };
    EXPECT_THAT(error(at::ones({3})), testing::HasSubstr("got Float [3]"));
    EXPECT_THAT(error(at::ones({3, 0})), testing::HasSubstr("one channel"));
    EXPECT_THAT(error(at::ones({3, 2}, at::kLong)),
                testing::HasSubstr("floating-point"));
    EXPECT_THAT(error(at::ones({3, 2}), at::ones({2})),
                testing::HasSubstr("both a weight and a bias"));
  });
}

TEST(SyncBatchNormFunctionTest, HasNoSecondDerivative) {
  OnRanks(1, [](Communicator& comm) {
    const at::Tensor x = at::ones({3, 2}).set_requires_grad(true);
    const at::Tensor y =
        SyncBatchNormForward(x, {}, {}, 1e-5, comm.process_group()).output;
    EXPECT_THAT(ErrorOf([&] {
                  y.sum().backward({}, /*retain_graph=*/true,
                                   /*create_graph=*/true);
                }),
                testing::HasSubstr("no second derivative"));
  });
}

}  // namespace
}  // namespace rankwise
