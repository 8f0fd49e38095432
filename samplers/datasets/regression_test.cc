#include "samplers/datasets/regression.h"

#include <ATen/ops/linalg_solve.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::HasSubstr;

Batch Whole(uint64_t seed, Split split, int64_t size) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return (*Regression::Open(seed, split, size))->Gather(indices);
}

TEST(RegressionTest, HasAsManyTargetsAsFeatures) {
  auto dataset = Regression::Open(0, Split::kTrain, 20);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_classes(), 0);
  const Batch batch = (*dataset)->Gather({19, 0, 19});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({3, 1024}));
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({3, 1024}));
  EXPECT_EQ(batch.target.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.data[0].equal(batch.data[2]));
  EXPECT_TRUE(batch.target[0].equal(batch.target[2]));
  EXPECT_FALSE(batch.data[0].equal(batch.data[1]));
}

TEST(RegressionTest, TheTrainSplitPredictsTheTestSplit) {
  const Batch train = Whole(1, Split::kTrain, 3 * 1024);
  const Batch test = Whole(1, Split::kTest, 100);
  EXPECT_FALSE(train.data[0].equal(test.data[0]));
  const at::Tensor transposed = train.data.t();
  const at::Tensor weight = at::linalg_solve(transposed.matmul(train.data),
                                             transposed.matmul(train.target));
  const double error =
      test.data.matmul(weight).sub(test.target).square().mean().item<double>();
  // Least squares of n examples and d features adds the part d / (n - d) to the
  // noise's 0.0052.
  EXPECT_NEAR(error, 0.0052 * 1.5, 0.002);
  EXPECT_NEAR(test.target.square().mean().item<double>(), 0.67, 0.1);
}

TEST(RegressionTest, IsAFunctionOfSeedSplitAndIndex) {
  const Batch first = Whole(5, Split::kTrain, 3);
  const Batch longer = Whole(5, Split::kTrain, 30);
  EXPECT_TRUE(first.target.equal(longer.target.slice(0, 0, 3)));
  EXPECT_FALSE(first.target.equal(Whole(6, Split::kTrain, 3).target));
}

TEST(RegressionTest, RefusesANegativeSize) {
  EXPECT_THAT(
      std::string(Regression::Open(0, Split::kTest, -1).status().message()),
      HasSubstr("regression: the test split is to have -1 examples"));
}

TEST(RegressionTest, ThrowsBeyondTheEnd) {
  EXPECT_THROW((*Regression::Open(0, Split::kTrain, 4))->Gather({4}),
               c10::Error);
}

}  // namespace
}  // namespace rankwise
