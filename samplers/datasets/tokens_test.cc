#include "samplers/datasets/tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Batch Whole(uint64_t seed, Split split, int64_t size, int64_t length) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return (*Tokens::Open(seed, split, size, length))->Gather(indices);
}

// [256, 256]: how often the column's token follows the row's.
at::Tensor CountPairs(const Batch& batch) {
  return at::bincount((batch.data * 256 + batch.target).flatten(), {},
                      256 * 256)
      .view({256, 256});
}

TEST(TokensTest, TheTargetIsTheNextToken) {
  auto dataset = Tokens::Open(0, Split::kTrain, 20, 48);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_classes(), 256);
  EXPECT_THAT((*dataset)->example_shape(), ElementsAre(48));
  const Batch batch = (*dataset)->Gather({19, 0, 19});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({3, 48}));
  EXPECT_EQ(batch.data.scalar_type(), at::kLong);
  EXPECT_TRUE(batch.data.slice(1, 1, 48).equal(batch.target.slice(1, 0, 47)));
  EXPECT_TRUE(batch.data[0].equal(batch.data[2]));
  EXPECT_FALSE(batch.data[0].equal(batch.data[1]));
}

TEST(TokensTest, TheTrainSplitPredictsTheTestSplit) {
  const at::Tensor train = CountPairs(Whole(1, Split::kTrain, 4000, 128));
  const Batch test = Whole(1, Split::kTest, 500, 128);
  EXPECT_NEAR(train.sum().item<double>(), 4000 * 128, 0.5);
  // The bigram model with one count of everything added.
  const at::Tensor smoothed = train.to(at::kDouble) + 1.0;
  const at::Tensor log = (smoothed / smoothed.sum(1, /*keepdim=*/true)).log();
  const double loss = -(log * CountPairs(test)).sum().item<double>() /
                      static_cast<double>(test.data.numel());
  EXPECT_NEAR(loss, 1.64, 0.08);
}

TEST(TokensTest, IsAFunctionOfSeedSplitAndIndex) {
  const Batch first = Whole(5, Split::kTrain, 3, 16);
  const Batch longer = Whole(5, Split::kTrain, 9, 20);
  EXPECT_TRUE(first.data.equal(longer.data.slice(0, 0, 3).slice(1, 0, 16)));
  EXPECT_FALSE(first.data.equal(Whole(6, Split::kTrain, 3, 16).data));
  EXPECT_FALSE(first.data.equal(Whole(5, Split::kTest, 3, 16).data));
}

TEST(TokensTest, RefusesImpossibleSizes) {
  EXPECT_THAT(
      std::string(Tokens::Open(0, Split::kTest, -1, 8).status().message()),
      HasSubstr("tokens: the test split is to have -1 examples"));
  EXPECT_THAT(
      std::string(Tokens::Open(0, Split::kTest, 1, 0).status().message()),
      HasSubstr("sequences are to have 0 tokens"));
}

TEST(TokensTest, ThrowsBeyondTheEnd) {
  EXPECT_THROW((*Tokens::Open(0, Split::kTrain, 4, 8))->Gather({4}),
               c10::Error);
}

}  // namespace
}  // namespace rankwise
