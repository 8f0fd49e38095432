#include "samplers/sampling/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PermutationTest, EqualsPython) {
  // torch.randperm(10, generator=torch.Generator().manual_seed(0)), then again.
  at::Generator generator = SeededGenerator(0);
  EXPECT_THAT(RandomPermutation(10, generator),
              ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(RandomPermutation(10, generator),
              ElementsAre(3, 9, 4, 2, 7, 8, 6, 0, 5, 1));
}

TEST(PermutationTest, OfNothingAndOfOne) {
  EXPECT_THAT(RandomPermutation(0, SeededGenerator(3)), IsEmpty());
  EXPECT_THAT(RandomPermutation(1, SeededGenerator(3)), ElementsAre(0));
}

TEST(PermutationTest, TakesSeedsBeyondSixtyThreeBits) {
  EXPECT_EQ(RandomPermutation(20, SeededGenerator(~uint64_t{0})),
            RandomPermutation(20, SeededGenerator(~uint64_t{0})));
}

}  // namespace
}  // namespace rankwise
