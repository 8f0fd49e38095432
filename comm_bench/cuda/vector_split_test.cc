#include "comm_bench/cuda/vector_split.h"

#include <gtest/gtest.h>

namespace rankwise::micro {
namespace {

TEST(SplitIntoWords, AnAlignedBufferHasNoHead) {
  const VectorSplit split = SplitIntoWords(0x1000, 50, 16);
  EXPECT_EQ(split.head, 0);
  EXPECT_EQ(split.words, 3);
  EXPECT_EQ(split.tail, 2);
}

TEST(SplitIntoWords, EndsWithinTheFirstWord) {
  const VectorSplit split = SplitIntoWords(0x1001, 7, 16);
  EXPECT_EQ(split.head, 7);
  EXPECT_EQ(split.words, 0);
  EXPECT_EQ(split.tail, 0);
}

TEST(SplitIntoWords, CoversEveryByteOnceAndAligned) {
  for (int width : {1, 2, 4, 8, 16}) {
    for (uintptr_t address = 0x1000; address < 0x1011; ++address) {
      for (int64_t bytes = 0; bytes < 70; ++bytes) {
        const VectorSplit split = SplitIntoWords(address, bytes, width);
        EXPECT_EQ(split.head + split.words * width + split.tail, bytes);
        EXPECT_LT(split.head, width);
        EXPECT_LT(split.tail, width);
        if (split.words > 0) {
          EXPECT_EQ((address + split.head) % width, 0u);
        }
      }
    }
  }
}

TEST(WidestCommonWord, IsWhatBothAreAlignedTo) {
  EXPECT_EQ(WidestCommonWord(0x1000, 0x2000), 16);
  EXPECT_EQ(WidestCommonWord(0x1003, 0x2003), 16) << "the same place in a word";
  EXPECT_EQ(WidestCommonWord(0x1008, 0x2000), 8);
  EXPECT_EQ(WidestCommonWord(0x1000, 0x2004), 4);
  EXPECT_EQ(WidestCommonWord(0x1002, 0x2000), 2);
  EXPECT_EQ(WidestCommonWord(0x1000, 0x2001), 1);
}

}  // namespace
}  // namespace rankwise::micro
