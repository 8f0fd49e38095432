#include "records/quoted.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(Quoted, IsShortAndPrintable) {
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("0X1"), "\"0X1\"");
  EXPECT_EQ(Quoted("a\x1b[2J\r\xff"), "\"a\\x1b[2J\\r\\xff\"");
  EXPECT_EQ(Quoted(absl::string_view("\0", 1)), "\"\\x00\"");
  EXPECT_EQ(Quoted(std::string(40, 'a')), "\"" + std::string(40, 'a') + "\"");
  EXPECT_EQ(Quoted(std::string(1 << 20, 'a')),
            "\"" + std::string(40, 'a') + "...\"");
}

}  // namespace
}  // namespace rankwise
