#include "comm_bench/cuda/byte_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace rankwise::micro {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> Filled(int64_t first, int64_t count) {
  std::vector<uint8_t> bytes(count);
  FillPattern(first, absl::MakeSpan(bytes));
  return bytes;
}

TEST(Pattern, IsTheSameInPiecesAndOverItsPeriod) {
  const std::vector<uint8_t> whole = Filled(0, 3 * kPatternPeriod + 5);
  for (int64_t first : {int64_t{0}, int64_t{1}, kPatternPeriod - 1,
                        kPatternPeriod, 2 * kPatternPeriod + 3}) {
    const std::vector<uint8_t> piece =
        Filled(first, static_cast<int64_t>(whole.size()) - first);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first))
        << first;
    EXPECT_TRUE(CheckPattern(first, piece).ok()) << first;
  }
}

TEST(Pattern, AnyWrongByteIsFoundAndNamed) {
  std::vector<uint8_t> bytes = Filled(10, 2 * kPatternPeriod);
  for (int64_t wrong : {int64_t{0}, kPatternPeriod - 11, kPatternPeriod - 10,
                        2 * kPatternPeriod - 1}) {
    bytes[wrong] ^= 1;
    const absl::Status status = CheckPattern(10, bytes);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("byte " + std::to_string(wrong + 10) + " is"));
    bytes[wrong] ^= 1;
  }
}

TEST(Pattern, AShiftedCopyIsFound) {
  EXPECT_TRUE(absl::IsDataLoss(CheckPattern(0, Filled(1, 100))));
  EXPECT_TRUE(absl::IsDataLoss(CheckPattern(0, Filled(16, 100))));
  EXPECT_TRUE(absl::IsDataLoss(CheckPattern(0, std::vector<uint8_t>(100))));
}

TEST(Pattern, NothingIsRight) {
  EXPECT_TRUE(CheckPattern(0, {}).ok());
  EXPECT_EQ(PatternSum(0), 0);
}

TEST(Pattern, SumsOfPrefixesAreThoseOfTheValues) {
  const std::vector<int8_t>& values = PatternValues();
  ASSERT_EQ(static_cast<int64_t>(values.size()), kPatternPeriod);
  int64_t sum = 0;
  for (int64_t count = 0; count < 2 * kPatternPeriod; ++count) {
    if (count % 997 == 0) {
      ASSERT_EQ(PatternSum(count), sum) << count;
    }
    const int8_t value = values[count % kPatternPeriod];
    ASSERT_TRUE(std::abs(value) == 1 || std::abs(value) == 2);
    sum += value;
  }
}

// What the exactness of float sums rests on.
TEST(Pattern, SumsStayWholeInFloat) {
  constexpr int64_t kMany = int64_t{1} << 30;
  constexpr int64_t kExactInFloat = int64_t{1} << 24;
  EXPECT_LT(std::abs(PatternSum(kMany)), kExactInFloat);
}

}  // namespace
}  // namespace rankwise::micro
