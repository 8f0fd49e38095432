#include "trainers/checkpoint/durable_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// An empty folder of this test's own.
fs::path Folder() {
  const fs::path folder =
      fs::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string Contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Makes every file end at `bytes`, as a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST(DurableFileTest, AppearsWholeAtCommit) {
  const fs::path path = Folder() / "a";
  auto file = DurableFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("one ", 4).ok());
  ASSERT_TRUE((*file)->Append("two", 3).ok());
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(Contents(path), "one two");
  EXPECT_FALSE(fs::exists(path.string() + kTemporarySuffix));
}

TEST(DurableFileTest, LeavesNothingWithoutCommit) {
  const fs::path path = Folder() / "a";
  std::ofstream(path) << "before";
  {
    auto file = DurableFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("after", 5).ok());
  }
  EXPECT_EQ(Contents(path), "before");
  EXPECT_FALSE(fs::exists(path.string() + kTemporarySuffix));
}

TEST(DurableFileTest, FullDiskNamesTheFileAndLeavesNothing) {
  const fs::path path = Folder() / "a";
  std::ofstream(path) << "before";
  {
    const FileSizeLimit limit(1000);
    auto file = DurableFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status status =
        (*file)->Append(std::string(5000, 'x').data(), 5000);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cannot write " + path.string()));
    EXPECT_THAT(std::string(status.message()), HasSubstr("after 1000 bytes"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("File too large"));
  }
  EXPECT_EQ(Contents(path), "before");
  EXPECT_FALSE(fs::exists(path.string() + kTemporarySuffix));
}

TEST(DurableFileTest, MissingFolderIsNamed) {
  const auto file = DurableFile::Create((Folder() / "missing" / "a").string());
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("missing/a.tmp: No such file"));
}

}  // namespace
}  // namespace rankwise
