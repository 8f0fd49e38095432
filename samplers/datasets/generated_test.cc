#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_lstsq.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "samplers/datasets/dataset.h"

namespace rankwise {
namespace {

DatasetOr Open(const char* name, uint64_t seed, Split split, int64_t size,
               int64_t sequence_length = 128) {
  return OpenDataset({.name = name,
                      .train_size = size,
                      .test_size = size,
                      .seed = seed,
                      .sequence_length = sequence_length},
                     split);
}

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;

std::vector<int64_t> Range(int64_t size) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

Batch WholeImages(uint64_t seed, Split split, int64_t size) {
  return (*Open("synthetic", seed, split, size))->Gather(Range(size));
}

TEST(SyntheticTest, HasTheShapesOfCifar10) {
  auto dataset = Open("synthetic", 0, Split::kTrain, 50000);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 50000);
  EXPECT_EQ((*dataset)->facts().num_classes, 10);
  const Batch batch = (*dataset)->Gather({49999, 3});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3, 32, 32}));
  EXPECT_EQ(batch.data.scalar_type(), at::kByte);
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({2}));
  EXPECT_EQ(batch.target.scalar_type(), at::kLong);
}

TEST(SyntheticTest, AnExampleDependsOnSeedSplitAndIndexOnly) {
  const Batch all = WholeImages(3, Split::kTrain, 20);
  auto larger = *Open("synthetic", 3, Split::kTrain, 1000);
  const Batch some = larger->Gather({7, 2, 7});
  EXPECT_TRUE(some.data[0].equal(all.data[7]));
  EXPECT_TRUE(some.data[1].equal(all.data[2]));
  EXPECT_TRUE(some.data[2].equal(all.data[7]));
  EXPECT_TRUE(some.target[1].equal(all.target[2]));
  EXPECT_FALSE(all.data.equal(WholeImages(4, Split::kTrain, 20).data));
  EXPECT_FALSE(all.data.equal(WholeImages(3, Split::kTest, 20).data));
}

TEST(SyntheticTest, IsTheSameOnEveryMachine) {
  const Batch batch = WholeImages(0, Split::kTrain, 100);
  const uint8_t* pixels = batch.data.const_data_ptr<uint8_t>();
  uint64_t digest = 0xcbf29ce484222325u;  // 64-bit FNV-1a
  for (int64_t i = 0; i < batch.data.numel(); ++i) {
    digest = (digest ^ pixels[i]) * 0x100000001b3u;
  }
  EXPECT_EQ(digest, 0xefb350f6baf7aeb6u);
}

TEST(SyntheticTest, ClassesAreBalancedAndSpread) {
  const Batch batch = WholeImages(0, Split::kTrain, 5000);
  std::vector<int> counts(10), even(10);
  const int64_t* labels = batch.target.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < 5000; ++i) {
    ++counts.at(labels[i]);
    if (i % 2 == 0) ++even.at(labels[i]);
  }
  EXPECT_THAT(counts, Each(Ge(400)));
  // A rank that takes every second example sees all classes.
  EXPECT_THAT(even, Each(Ge(190)));
}

// Classifies by the nearest of the classes' mean images.
double NearestMeanAccuracy(const Batch& train, const Batch& test) {
  const int64_t pixels = 3 * 32 * 32;
  std::vector<double> means(10 * pixels), counts(10);
  for (int64_t i = 0; i < train.data.size(0); ++i) {
    const int64_t label = train.target.const_data_ptr<int64_t>()[i];
    const uint8_t* image = train.data.const_data_ptr<uint8_t>() + i * pixels;
    for (int64_t p = 0; p < pixels; ++p) means[label * pixels + p] += image[p];
    ++counts[label];
  }
  for (size_t i = 0; i < means.size(); ++i) means[i] /= counts[i / pixels];
  int64_t correct = 0;
  for (int64_t i = 0; i < test.data.size(0); ++i) {
    const uint8_t* image = test.data.const_data_ptr<uint8_t>() + i * pixels;
    double nearest = 1e300;
    int64_t found = -1;
    for (int64_t label = 0; label < 10; ++label) {
      double distance = 0;
      for (int64_t p = 0; p < pixels; ++p) {
        const double d = means[label * pixels + p] - image[p];
        distance += d * d;
      }
      if (distance < nearest) nearest = distance, found = label;
    }
    if (found == test.target.const_data_ptr<int64_t>()[i]) ++correct;
  }
  return static_cast<double>(correct) / test.data.size(0);
}

TEST(SyntheticTest, CanBeLearnedButNotPerfectly) {
  const double accuracy = NearestMeanAccuracy(
      WholeImages(0, Split::kTrain, 2000), WholeImages(0, Split::kTest, 500));
  EXPECT_GT(accuracy, 0.5);
  EXPECT_LT(accuracy, 0.9);
}

DatasetConfig Vectors(int64_t features, int64_t classes) {
  DatasetConfig config;
  config.features = features;
  config.num_classes = classes;
  return config;
}

TEST(SyntheticTest, VectorsHaveTheWidthAndTheClassesThatWereAskedFor) {
  const auto dataset = OpenDataset(Vectors(21, 300), Split::kTrain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->facts().num_classes, 300);
  const Batch batch = (*dataset)->Gather(Range(2000));
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2000, 21}));
  EXPECT_EQ(batch.data.scalar_type(), at::kFloat);
  EXPECT_LE(batch.data.abs().max().item<float>(), 2);
  EXPECT_GE(batch.target.min().item<int64_t>(), 0);
  EXPECT_EQ(batch.target.max().item<int64_t>(), 299);
  EXPECT_TRUE((*dataset)->Gather({7}).data[0].equal(batch.data[7]));
}

TEST(SyntheticTest, VectorsOfAClassAreAlikeInBothSplits) {
  const auto mean = [](Split split, int64_t label) {
    const Batch batch =
        (*OpenDataset(Vectors(64, 4), split))->Gather(Range(1000));
    return batch.data.index({batch.target == label}).mean(0);
  };
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return (a - b).norm().item<double>();
  };
  const at::Tensor first = mean(Split::kTrain, 0);
  EXPECT_LT(3 * apart(first, mean(Split::kTest, 0)),
            apart(first, mean(Split::kTest, 1)));
}

TEST(SyntheticTest, VectorsNeedTwoClasses) {
  EXPECT_EQ(OpenDataset(Vectors(8, 1), Split::kTrain).status().message(),
            "--classes=1: --dataset=synthetic needs two classes or more");
}

TEST(SyntheticTest, MayBeEmpty) {
  EXPECT_EQ(WholeImages(0, Split::kTest, 0).data.size(0), 0);
}

TEST(SyntheticTest, RefusesANegativeSize) {
  EXPECT_THAT(
      std::string(Open("synthetic", 0, Split::kTest, -3).status().message()),
      HasSubstr("synthetic: the test split is to have -3 examples"));
}

TEST(SyntheticTest, ThrowsBeyondTheEnd) {
  auto dataset = *Open("synthetic", 0, Split::kTest, 4);
  EXPECT_THROW(dataset->Gather({4}), c10::Error);
  EXPECT_THROW(dataset->Gather({-1}), c10::Error);
}

Batch WholeLinear(uint64_t seed, Split split, int64_t size) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return (*Open("linear", seed, split, size))->Gather(indices);
}

// Appends a column of ones, for the bias.
at::Tensor WithOnes(const at::Tensor& features) {
  return at::cat({features, at::ones({features.size(0), 1})}, 1);
}

TEST(LinearRegressionTest, HasTenFeaturesAndOneTarget) {
  auto dataset = Open("linear", 0, Split::kTrain, 20);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->facts().num_classes, 0);
  const Batch batch = (*dataset)->Gather({19, 0, 19});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({3, 10}));
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({3, 1}));
  EXPECT_EQ(batch.data.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.data[0].equal(batch.data[2]));
  EXPECT_FALSE(batch.data[0].equal(batch.data[1]));
}

TEST(LinearRegressionTest, TheTrainSplitPredictsTheTestSplit) {
  const Batch train = WholeLinear(1, Split::kTrain, 2000);
  const Batch test = WholeLinear(1, Split::kTest, 1000);
  EXPECT_FALSE(train.data[0].equal(test.data[0]));
  const at::Tensor weight =
      std::get<0>(at::linalg_lstsq(WithOnes(train.data), train.target));
  const double error = WithOnes(test.data)
                           .matmul(weight)
                           .sub(test.target)
                           .square()
                           .mean()
                           .item<double>();
  EXPECT_NEAR(error, 0.01, 0.003);  // the noise only
}

TEST(LinearRegressionTest, IsDeterministic) {
  EXPECT_TRUE(WholeLinear(5, Split::kTrain, 30)
                  .target.equal(WholeLinear(5, Split::kTrain, 30).target));
  EXPECT_FALSE(WholeLinear(5, Split::kTrain, 30)
                   .target.equal(WholeLinear(6, Split::kTrain, 30).target));
}

TEST(LinearRegressionTest, RefusesANegativeSize) {
  EXPECT_THAT(
      std::string(Open("linear", 0, Split::kTrain, -1).status().message()),
      HasSubstr("linear: the train split is to have -1 examples"));
}

TEST(LinearRegressionTest, ThrowsBeyondTheEnd) {
  EXPECT_THROW((*Open("linear", 0, Split::kTrain, 4))->Gather({4}), c10::Error);
}

Batch WholeRegression(uint64_t seed, Split split, int64_t size) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return (*Open("regression", seed, split, size))->Gather(indices);
}

TEST(RegressionTest, HasAsManyTargetsAsFeatures) {
  auto dataset = Open("regression", 0, Split::kTrain, 20);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->facts().num_classes, 0);
  const Batch batch = (*dataset)->Gather({19, 0, 19});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({3, 1024}));
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({3, 1024}));
  EXPECT_EQ(batch.target.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.data[0].equal(batch.data[2]));
  EXPECT_TRUE(batch.target[0].equal(batch.target[2]));
  EXPECT_FALSE(batch.data[0].equal(batch.data[1]));
}

TEST(RegressionTest, TheTrainSplitPredictsTheTestSplit) {
  const Batch train = WholeRegression(1, Split::kTrain, 3 * 1024);
  const Batch test = WholeRegression(1, Split::kTest, 100);
  EXPECT_FALSE(train.data[0].equal(test.data[0]));
  const at::Tensor transposed = train.data.t();
  const at::Tensor weight = at::linalg_solve(transposed.matmul(train.data),
                                             transposed.matmul(train.target));
  const double error =
      test.data.matmul(weight).sub(test.target).square().mean().item<double>();
  // Least squares with n examples and d features adds d / (n - d) of the
  // noise's 0.0052.
  EXPECT_NEAR(error, 0.0052 * 1.5, 0.002);
  EXPECT_NEAR(test.target.square().mean().item<double>(), 0.67, 0.1);
}

TEST(RegressionTest, IsAFunctionOfSeedSplitAndIndex) {
  const Batch first = WholeRegression(5, Split::kTrain, 3);
  const Batch longer = WholeRegression(5, Split::kTrain, 30);
  EXPECT_TRUE(first.target.equal(longer.target.slice(0, 0, 3)));
  EXPECT_FALSE(first.target.equal(WholeRegression(6, Split::kTrain, 3).target));
}

TEST(RegressionTest, RefusesANegativeSize) {
  EXPECT_THAT(
      std::string(Open("regression", 0, Split::kTest, -1).status().message()),
      HasSubstr("regression: the test split is to have -1 examples"));
}

TEST(RegressionTest, ThrowsBeyondTheEnd) {
  EXPECT_THROW((*Open("regression", 0, Split::kTrain, 4))->Gather({4}),
               c10::Error);
}

Batch WholeTokens(uint64_t seed, Split split, int64_t size, int64_t length) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return (*Open("tokens", seed, split, size, length))->Gather(indices);
}

// Returns [256, 256]: how often the column's token follows the row's.
at::Tensor CountPairs(const Batch& batch) {
  return at::bincount((batch.data * 256 + batch.target).flatten(), {},
                      256 * 256)
      .view({256, 256});
}

TEST(TokensTest, TheTargetIsTheNextToken) {
  auto dataset = Open("tokens", 0, Split::kTrain, 20, 48);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->facts().num_classes, 256);
  EXPECT_THAT((*dataset)->facts().example_shape, ElementsAre(48));
  const Batch batch = (*dataset)->Gather({19, 0, 19});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({3, 48}));
  EXPECT_EQ(batch.data.scalar_type(), at::kLong);
  EXPECT_TRUE(batch.data.slice(1, 1, 48).equal(batch.target.slice(1, 0, 47)));
  EXPECT_TRUE(batch.data[0].equal(batch.data[2]));
  EXPECT_FALSE(batch.data[0].equal(batch.data[1]));
}

TEST(TokensTest, TheTrainSplitPredictsTheTestSplit) {
  const at::Tensor train = CountPairs(WholeTokens(1, Split::kTrain, 4000, 128));
  const Batch test = WholeTokens(1, Split::kTest, 500, 128);
  EXPECT_NEAR(train.sum().item<double>(), 4000 * 128, 0.5);
  // The bigram model with add-one smoothing.
  const at::Tensor smoothed = train.to(at::kDouble) + 1.0;
  const at::Tensor log = (smoothed / smoothed.sum(1, /*keepdim=*/true)).log();
  const double loss = -(log * CountPairs(test)).sum().item<double>() /
                      static_cast<double>(test.data.numel());
  EXPECT_NEAR(loss, 1.64, 0.08);
}

TEST(TokensTest, IsAFunctionOfSeedSplitAndIndex) {
  const Batch first = WholeTokens(5, Split::kTrain, 3, 16);
  const Batch longer = WholeTokens(5, Split::kTrain, 9, 20);
  EXPECT_TRUE(first.data.equal(longer.data.slice(0, 0, 3).slice(1, 0, 16)));
  EXPECT_FALSE(first.data.equal(WholeTokens(6, Split::kTrain, 3, 16).data));
  EXPECT_FALSE(first.data.equal(WholeTokens(5, Split::kTest, 3, 16).data));
}

TEST(TokensTest, RefusesImpossibleSizes) {
  EXPECT_THAT(
      std::string(Open("tokens", 0, Split::kTest, -1, 8).status().message()),
      HasSubstr("tokens: the test split is to have -1 examples"));
  EXPECT_THAT(
      std::string(Open("tokens", 0, Split::kTest, 1, 0).status().message()),
      HasSubstr("tokens: an example is to have 0 tokens"));
}

TEST(TokensTest, ThrowsBeyondTheEnd) {
  EXPECT_THROW((*Open("tokens", 0, Split::kTrain, 4, 8))->Gather({4}),
               c10::Error);
}

}  // namespace
}  // namespace rankwise
