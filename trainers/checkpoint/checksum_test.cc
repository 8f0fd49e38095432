#include "trainers/checkpoint/checksum.h"

#include <cstdint>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

uint64_t Of(const std::string& bytes) {
  Checksum checksum;
  checksum.Add(bytes);
  return checksum.value();
}

TEST(ChecksumTest, StaysTheSameAcrossVersions) {
  // Written into every checkpoint: a change here makes old files unreadable.
  EXPECT_EQ(Of(""), 0xF8BB92C91B3F5CC0u);
  EXPECT_EQ(Of("rankwise"), 0x2AE2B59DEF4FBF93u);
}

TEST(ChecksumTest, EveryFlippedBitShows) {
  const std::string bytes(37, '\x5a');
  std::set<uint64_t> seen = {Of(bytes)};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_TRUE(seen.insert(Of(flipped)).second) << "bit " << bit;
  }
}

TEST(ChecksumTest, TwoFlippedSignBitsDoNotCancel) {
  std::string bytes(64, '\0');
  const uint64_t before = Of(bytes);
  bytes[7] = bytes[15] = '\x80';
  EXPECT_NE(Of(bytes), before);
}

TEST(ChecksumTest, FieldsAndLengthsCount) {
  EXPECT_NE(Of("ab"), Of(std::string("ab\0", 3)));
  Checksum left, right;
  left.Add("ab");
  left.Add("c");
  right.Add("a");
  right.Add("bc");
  EXPECT_NE(left.value(), right.value());
}

}  // namespace
}  // namespace rankwise
