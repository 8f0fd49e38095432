#include "analysis/plan/long_step.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "analysis/plan/layout.h"

namespace rankwise::plan {
namespace {

Layout LongStep(int64_t chunks) {
  Layout layout;
  layout.pp = 64;
  layout.schedule = chunks > 1 ? "interleaved_1f1b" : "1f1b";
  layout.chunks = chunks;
  layout.micro_batches = 5000;
  return layout;
}

// Fails unless both steps are congruent to `layout` modulo `modulus`, have at
// most 16 pp micro-batches and lie on a line with `layout`.
void ExpectShorter(const Layout& layout, int64_t period, int64_t modulus) {
  const auto steps = Shorten(layout, kLongestSimulatedStep, period);
  ASSERT_TRUE(steps.has_value());
  const int64_t more = steps->more.micro_batches;
  const int64_t fewer = steps->fewer.micro_batches;
  EXPECT_EQ(more % modulus, layout.micro_batches % modulus);
  EXPECT_EQ(fewer % modulus, layout.micro_batches % modulus);
  EXPECT_LE(more, 16 * layout.pp);
  EXPECT_LT(fewer, more);
  EXPECT_GE(fewer, 1);
  EXPECT_DOUBLE_EQ(
      steps->Extrapolate(static_cast<double>(fewer), static_cast<double>(more)),
      static_cast<double>(layout.micro_batches));
}

TEST(Shorten, KeepsPeriodAndPipelineSize) {
  ExpectShorter(LongStep(2), 1, 64);
  ExpectShorter(LongStep(2), 3, 192);
  ExpectShorter(LongStep(1), 3, 192);
}

// 576 micro-batches are more than half of 16 pp.
TEST(Shorten, KeepsThePatternOfChunksIfPeriodAndPipelineSizeDoNotFit) {
  ExpectShorter(LongStep(2), 9, 64);
  ExpectShorter(LongStep(2), 255, 64);
  ExpectShorter(LongStep(1), 9, 9);
}

TEST(Shorten, LeavesStepsThatAreNotLong) {
  Layout layout = LongStep(2);
  layout.micro_batches = 16 * layout.pp;
  EXPECT_FALSE(Shorten(layout, kLongestSimulatedStep, 9).has_value());
}

}  // namespace
}  // namespace rankwise::plan
