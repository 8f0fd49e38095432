#include "trainers/learning_rate.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(LearningRateTest, ConstantIsThePeakFromTheFirstStep) {
  const LearningRate rate{.peak = 0.1};
  EXPECT_DOUBLE_EQ(rate.At(1), 0.1);
  EXPECT_DOUBLE_EQ(rate.At(1000000), 0.1);
}

TEST(LearningRateTest, WarmUpRisesLinearlyAndReachesThePeak) {
  const LearningRate rate{.peak = 0.4, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(rate.At(1), 0.1);
  EXPECT_DOUBLE_EQ(rate.At(2), 0.2);
  EXPECT_DOUBLE_EQ(rate.At(3), 0.3);
  EXPECT_DOUBLE_EQ(rate.At(4), 0.4);
  EXPECT_DOUBLE_EQ(rate.At(5), 0.4);
}

TEST(LearningRateTest, CosineFallsFromThePeakThroughHalfToZero) {
  const LearningRate rate{.peak = 1.0,
                          .warmup_steps = 10,
                          .total_steps = 110,
                          .decay = Decay::kCosine};
  EXPECT_DOUBLE_EQ(rate.At(10), 1.0);
  EXPECT_NEAR(rate.At(60), 0.5, 1e-12);
  EXPECT_NEAR(rate.At(110), 0.0, 1e-12);
  for (int64_t step = 11; step <= 110; ++step)
    EXPECT_LT(rate.At(step), rate.At(step - 1));
}

TEST(LearningRateTest, CosineWithoutWarmUpGoesFromThePeakToZero) {
  const LearningRate rate{.peak = 2.0,
                          .warmup_steps = 0,
                          .total_steps = 9,
                          .decay = Decay::kCosine};
  EXPECT_DOUBLE_EQ(rate.At(1), 2.0);
  EXPECT_NEAR(rate.At(5), 1.0, 1e-12);
  EXPECT_NEAR(rate.At(9), 0.0, 1e-12);
}

TEST(LearningRateTest, ParsesTheNamesOnTheCommandLine) {
  Decay decay = Decay::kConstant;
  EXPECT_TRUE(ParseDecay("cosine", &decay));
  EXPECT_EQ(decay, Decay::kCosine);
  EXPECT_TRUE(ParseDecay("constant", &decay));
  EXPECT_EQ(decay, Decay::kConstant);
  EXPECT_FALSE(ParseDecay("linear", &decay));
}

}  // namespace
}  // namespace rankwise
