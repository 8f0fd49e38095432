#include "samplers/datasets/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;

std::vector<int64_t> Range(int64_t size) {
  std::vector<int64_t> indices(size);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

Batch Whole(uint64_t seed, Split split, int64_t size) {
  return (*Synthetic::Open(seed, split, size))->Gather(Range(size));
}

TEST(SyntheticTest, HasTheShapesOfCifar10) {
  auto dataset = Synthetic::Open(0, Split::kTrain, 50000);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 50000);
  EXPECT_EQ((*dataset)->num_classes(), 10);
  const Batch batch = (*dataset)->Gather({49999, 3});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3, 32, 32}));
  EXPECT_EQ(batch.data.scalar_type(), at::kByte);
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({2}));
  EXPECT_EQ(batch.target.scalar_type(), at::kLong);
}

TEST(SyntheticTest, AnExampleDependsOnSeedSplitAndIndexOnly) {
  const Batch all = Whole(3, Split::kTrain, 20);
  auto larger = *Synthetic::Open(3, Split::kTrain, 1000);
  const Batch some = larger->Gather({7, 2, 7});
  EXPECT_TRUE(some.data[0].equal(all.data[7]));
  EXPECT_TRUE(some.data[1].equal(all.data[2]));
  EXPECT_TRUE(some.data[2].equal(all.data[7]));
  EXPECT_TRUE(some.target[1].equal(all.target[2]));
  EXPECT_FALSE(all.data.equal(Whole(4, Split::kTrain, 20).data));
  EXPECT_FALSE(all.data.equal(Whole(3, Split::kTest, 20).data));
}

TEST(SyntheticTest, IsTheSameOnEveryMachine) {
  const Batch batch = Whole(0, Split::kTrain, 100);
  const uint8_t* pixels = batch.data.const_data_ptr<uint8_t>();
  uint64_t digest = 0xcbf29ce484222325u;  // 64-bit FNV-1a
  for (int64_t i = 0; i < batch.data.numel(); ++i) {
    digest = (digest ^ pixels[i]) * 0x100000001b3u;
  }
  EXPECT_EQ(digest, 0xefb350f6baf7aeb6u);
}

TEST(SyntheticTest, ClassesAreBalancedAndSpread) {
  const Batch batch = Whole(0, Split::kTrain, 5000);
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
  const int64_t pixels = Synthetic::kPixels;
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
  const double accuracy = NearestMeanAccuracy(Whole(0, Split::kTrain, 2000),
                                              Whole(0, Split::kTest, 500));
  EXPECT_GT(accuracy, 0.5);
  EXPECT_LT(accuracy, 0.9);
}

TEST(SyntheticTest, MayBeEmpty) {
  EXPECT_EQ(Whole(0, Split::kTest, 0).data.size(0), 0);
}

TEST(SyntheticTest, RefusesANegativeSize) {
  EXPECT_THAT(
      std::string(Synthetic::Open(0, Split::kTest, -3).status().message()),
      HasSubstr("synthetic: the test split is to have -3 examples"));
}

TEST(SyntheticTest, ThrowsBeyondTheEnd) {
  auto dataset = *Synthetic::Open(0, Split::kTest, 4);
  EXPECT_THROW(dataset->Gather({4}), c10::Error);
  EXPECT_THROW(dataset->Gather({-1}), c10::Error);
}

}  // namespace
}  // namespace rankwise
