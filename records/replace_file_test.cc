#include "records/replace_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

absl::Status Replace(const std::string& path) {
  return ReplaceFile(path, [](std::ostream& out) { out << "new"; });
}

class ReplaceFileTest : public ::testing::Test {
 protected:
  ReplaceFileTest() {
    fs::remove_all(dir_);
    fs::create_directory(dir_);
  }
  const std::string dir_ = testing::TempDir() + "replace_file";
};

TEST_F(ReplaceFileTest, ReplacesAFileAndLeavesNothingElse) {
  const std::string path = dir_ + "/file";
  std::ofstream(path) << "old";
  ASSERT_TRUE(CheckReplaceable(path).ok());
  EXPECT_EQ(ContentOf(path), "old");
  ASSERT_TRUE(Replace(path).ok());
  EXPECT_EQ(ContentOf(path), "new");
  EXPECT_EQ(
      std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(ReplaceFileTest, FollowsLinksAlsoToWhatIsNotThereYet) {
  fs::create_directory(dir_ + "/data");
  fs::create_symlink("data/file", dir_ + "/link");
  fs::create_symlink("link", dir_ + "/link_to_link");
  for (int i = 0; i < 2; ++i) {
    const absl::Status replaced = Replace(dir_ + "/link_to_link");
    ASSERT_TRUE(replaced.ok()) << replaced;
    EXPECT_TRUE(fs::is_symlink(dir_ + "/link_to_link"));
    EXPECT_TRUE(fs::is_symlink(dir_ + "/link"));
    EXPECT_EQ(ContentOf(dir_ + "/data/file"), "new");
  }
}

TEST_F(ReplaceFileTest, RefusesWhatIsNoRegularFile) {
  const std::string fifo = dir_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fs::create_symlink("fifo", dir_ + "/link");
  fs::create_symlink("loop", dir_ + "/loop");
  for (const std::string& path :
       {fifo, dir_ + "/link", dir_, std::string("/dev/null"), dir_ + "/loop"}) {
    EXPECT_FALSE(Replace(path).ok()) << path;
    EXPECT_FALSE(CheckReplaceable(path).ok()) << path;
  }
  EXPECT_TRUE(fs::is_fifo(fifo));
  EXPECT_TRUE(fs::is_symlink(dir_ + "/link"));
  EXPECT_THAT(CheckReplaceable(fifo).message(),
              AllOf(HasSubstr(fifo), HasSubstr("not a regular file")));
}

TEST_F(ReplaceFileTest, AFullDiskLeavesWhatWasThereAndNothingElse) {
  const std::string path = dir_ + "/file";
  std::ofstream(path) << "before";
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  // file size limit, to simulate a full disk
  const rlimit limit = {1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const absl::Status status = ReplaceFile(path, std::string(5000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("writing " + path), HasSubstr("File too large")));
  EXPECT_EQ(ContentOf(path), "before");
  EXPECT_EQ(
      std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(ReplaceFileTest, KnowsAFolderThatCannotBeWrittenTo) {
  EXPECT_THAT(CheckReplaceable("/proc/self/file").message(),
              HasSubstr("writing /proc/self/file"));
}

TEST(ReplaceFileByText, ReplacesTheContentAndLeavesNothingElse) {
  const fs::path folder = fs::path(testing::TempDir()) / "replace_by_text";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const std::string path = folder / "out";
  ASSERT_TRUE(ReplaceFile(path, "first").ok());
  ASSERT_TRUE(ReplaceFile(path, "2nd").ok());
  EXPECT_EQ(ContentOf(path), "2nd");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

TEST(ReplaceFileByText, NamesTheFileWhereItCannot) {
  const std::string path = testing::TempDir() + "/no such folder/out";
  const absl::Status status = ReplaceFile(path, "text");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr(path),
                             testing::HasSubstr("its folder must exist")));
}

TEST(ReplaceFileByText, LeavesWhatCannotBeReplaced) {
  const fs::path folder = fs::path(testing::TempDir()) / "a_folder";
  fs::remove_all(folder);
  fs::create_directories(folder / "inside");
  EXPECT_FALSE(ReplaceFile(folder.string(), "text").ok());
  EXPECT_TRUE(fs::is_directory(folder / "inside"));
  for (const auto& entry : fs::directory_iterator(testing::TempDir())) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

}  // namespace
}  // namespace rankwise
