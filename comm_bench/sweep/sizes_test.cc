#include "comm_bench/sweep/sizes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SizesTest, ReadsUnits) {
  EXPECT_EQ(*ParseBytes("8"), 8);
  EXPECT_EQ(*ParseBytes("8B"), 8);
  EXPECT_EQ(*ParseBytes("4K"), 4096);
  EXPECT_EQ(*ParseBytes("4KiB"), 4096);
  EXPECT_EQ(*ParseBytes("64m"), 64 << 20);
  EXPECT_EQ(*ParseBytes("2 GB"), int64_t{2} << 30);
}

TEST(SizesTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-4", "4.5K", "4T", "0",
                           "99999999999999999999", "9223372036854775807K"}) {
    EXPECT_THAT(ParseBytes(text).status().message(),
                HasSubstr("sizes look like"))
        << text;
  }
  EXPECT_FALSE(ParseByteList("8,,16").ok());
}

TEST(SizesTest, ListsKeepTheirOrder) {
  EXPECT_THAT(*ParseByteList("1M,8"), ElementsAre(1 << 20, 8));
}

TEST(SizesTest, GeometricSizesEndWithTheLargest) {
  EXPECT_THAT(GeometricSizes(8, 64, 2), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(GeometricSizes(8, 100, 4), ElementsAre(8, 32, 100));
  EXPECT_THAT(GeometricSizes(8, 8, 2), ElementsAre(8));
  EXPECT_THAT(GeometricSizes(1, 4, 1.2), ElementsAre(1, 2, 3, 4));
}

TEST(SizesTest, FormatsForPeople) {
  EXPECT_EQ(FormatBytes(8), "8 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(64 << 20), "64 MiB");
}

}  // namespace
}  // namespace rankwise::comm_bench
