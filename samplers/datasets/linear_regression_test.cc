#include "samplers/datasets/linear_regression.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_lstsq.h>
#include <ATen/ops/ones.h>
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
  return (*LinearRegression::Open(seed, split, size))->Gather(indices);
}

// The features with a column of ones, for the bias.
at::Tensor WithOnes(const at::Tensor& features) {
  return at::cat({features, at::ones({features.size(0), 1})}, 1);
}

TEST(LinearRegressionTest, HasTenFeaturesAndOneTarget) {
  auto dataset = LinearRegression::Open(0, Split::kTrain, 20);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_classes(), 0);
  const Batch batch = (*dataset)->Gather({19, 0, 19});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({3, 10}));
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({3, 1}));
  EXPECT_EQ(batch.data.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.data[0].equal(batch.data[2]));
  EXPECT_FALSE(batch.data[0].equal(batch.data[1]));
}

TEST(LinearRegressionTest, TheTrainSplitPredictsTheTestSplit) {
  const Batch train = Whole(1, Split::kTrain, 2000);
  const Batch test = Whole(1, Split::kTest, 1000);
  EXPECT_FALSE(train.data[0].equal(test.data[0]));
  const at::Tensor weight =
      std::get<0>(at::linalg_lstsq(WithOnes(train.data), train.target));
  const double error = WithOnes(test.data)
                           .matmul(weight)
                           .sub(test.target)
                           .square()
                           .mean()
                           .item<double>();
  EXPECT_NEAR(error, 0.01, 0.003);  // the noise, and nothing else
}

TEST(LinearRegressionTest, IsDeterministic) {
  EXPECT_TRUE(Whole(5, Split::kTrain, 30)
                  .target.equal(Whole(5, Split::kTrain, 30).target));
  EXPECT_FALSE(Whole(5, Split::kTrain, 30)
                   .target.equal(Whole(6, Split::kTrain, 30).target));
}

TEST(LinearRegressionTest, RefusesANegativeSize) {
  EXPECT_THAT(
      std::string(
          LinearRegression::Open(0, Split::kTrain, -1).status().message()),
      HasSubstr("linear: the train split is to have -1 examples"));
}

TEST(LinearRegressionTest, ThrowsBeyondTheEnd) {
  EXPECT_THROW((*LinearRegression::Open(0, Split::kTrain, 4))->Gather({4}),
               c10::Error);
}

}  // namespace
}  // namespace rankwise
