#include "analysis/study/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

TEST(FolderLock, IsHeldOnce) {
  const std::string dir = testing::TempDir();
  std::optional<FolderLock> first;
  {
    auto taken = FolderLock::Take(dir);
    ASSERT_TRUE(taken.ok()) << taken.status();
    first.emplace(*std::move(taken));
  }
  const auto second = FolderLock::Take(dir);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another study is running in this folder"));
  first.reset();
  EXPECT_TRUE(FolderLock::Take(dir).ok());
}

TEST(FolderLock, NeedsTheFolder) {
  EXPECT_TRUE(absl::IsNotFound(
      FolderLock::Take(testing::TempDir() + "/none").status()));
}

}  // namespace
}  // namespace rankwise
