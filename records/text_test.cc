#include "records/text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TextTest, ListsDivisors) {
  EXPECT_EQ(DivisorsOf(1), "1");
  EXPECT_EQ(DivisorsOf(3), "1 or 3");
  EXPECT_EQ(DivisorsOf(4), "1, 2 or 4");
}

TEST(TextTest, ReadsUnits) {
  EXPECT_EQ(*ParseBytes("8"), 8);
  EXPECT_EQ(*ParseBytes("8B"), 8);
  EXPECT_EQ(*ParseBytes("4K"), 4096);
  EXPECT_EQ(*ParseBytes("4KiB"), 4096);
  EXPECT_EQ(*ParseBytes("64m"), 64 << 20);
  EXPECT_EQ(*ParseBytes("2 GB"), int64_t{2} << 30);
}

TEST(TextTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-4", "4.5K", "4T", "0",
                           "99999999999999999999", "9223372036854775807K"}) {
    EXPECT_THAT(ParseBytes(text).status().message(),
                HasSubstr("sizes look like"))
        << text;
  }
  EXPECT_FALSE(ParseByteList("8,,16").ok());
}

TEST(TextTest, ListsKeepTheirOrder) {
  EXPECT_THAT(*ParseByteList("1M,8"), ElementsAre(1 << 20, 8));
}

TEST(TextTest, FormatsForPeople) {
  EXPECT_EQ(FormatBytes(8), "8 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(64 << 20), "64 MiB");
}

}  // namespace
}  // namespace rankwise
