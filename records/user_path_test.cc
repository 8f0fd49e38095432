#include "records/user_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace rankwise {
namespace {

class UserPathTest : public testing::Test {
 protected:
  ~UserPathTest() override { unsetenv("BUILD_WORKING_DIRECTORY"); }
};

TEST_F(UserPathTest, IsFromWhereTheCommandWasTyped) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/user", 1);
  EXPECT_EQ(UserPath("a/../b.jsonl"), "/home/user/b.jsonl");
  EXPECT_EQ(UserPath("../b"), "/home/b");
  EXPECT_EQ(UserPath("/tmp/b"), "/tmp/b");
  EXPECT_EQ(UserPath("folder/"), "/home/user/folder");
  EXPECT_EQ(UserPath(""), "");
}

TEST_F(UserPathTest, WithoutBazelIsFromTheCurrentFolder) {
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(UserPath("b"), (std::filesystem::current_path() / "b").string());
  EXPECT_EQ(UserPath(""), "");
}

}  // namespace
}  // namespace rankwise
