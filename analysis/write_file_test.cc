#include "analysis/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/status.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WriteFile, ReplacesTheContentAndLeavesNothingElse) {
  const fs::path folder = fs::path(testing::TempDir()) / "write_file";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const std::string path = folder / "out";
  ASSERT_TRUE(WriteFile(path, "first").ok());
  ASSERT_TRUE(WriteFile(path, "2nd").ok());
  EXPECT_EQ(TextOf(path), "2nd");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

TEST(WriteFile, NamesTheFileWhereItCannot) {
  const std::string path = testing::TempDir() + "/no such folder/out";
  const absl::Status status = WriteFile(path, "text");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr(path),
                             testing::HasSubstr("its folder must exist")));
}

TEST(WriteFile, LeavesWhatCannotBeReplaced) {
  const fs::path folder = fs::path(testing::TempDir()) / "a_folder";
  fs::remove_all(folder);
  fs::create_directories(folder / "inside");
  EXPECT_FALSE(WriteFile(folder.string(), "text").ok());
  EXPECT_TRUE(fs::is_directory(folder / "inside"));
  for (const auto& entry : fs::directory_iterator(testing::TempDir())) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

}  // namespace
}  // namespace rankwise
