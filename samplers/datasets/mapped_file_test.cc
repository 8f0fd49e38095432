#include "samplers/datasets/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(MappedFileTest, ShowsTheBytes) {
  auto file = MappedFile::Open(Write("bytes", "a\x01z"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->bytes(), ElementsAre('a', 1, 'z'));
}

TEST(MappedFileTest, Moves) {
  auto file = MappedFile::Open(Write("moved", "xy"));
  MappedFile moved = *std::move(file);
  EXPECT_THAT(moved.bytes(), ElementsAre('x', 'y'));
  EXPECT_THAT(file->bytes(), IsEmpty());
}

TEST(MappedFileTest, AnEmptyFileHasNoBytes) {
  auto file = MappedFile::Open(Write("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->bytes(), IsEmpty());
}

TEST(MappedFileTest, NamesAMissingFile) {
  const absl::Status status =
      MappedFile::Open(testing::TempDir() + "nothing").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing"));
}

TEST(MappedFileTest, RefusesAFolder) {
  EXPECT_THAT(
      std::string(MappedFile::Open(testing::TempDir()).status().message()),
      HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace rankwise
