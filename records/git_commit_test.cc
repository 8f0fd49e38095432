#include "records/git_commit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rankwise {
namespace {

const char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

class GitCommitTest : public testing::Test {
 protected:
  GitCommitTest()
      : workspace_(
            testing::TempDir() + "/" +
            testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(workspace_);
    std::filesystem::create_directories(workspace_);
  }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = workspace_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  const std::string workspace_;
};

TEST_F(GitCommitTest, FollowsTheBranch) {
  Write(".git/HEAD", "ref: refs/heads/main");
  Write(".git/refs/heads/main", kCommit);
  EXPECT_EQ(GitCommit(workspace_), kCommit);
}

TEST_F(GitCommitTest, ReadsADetachedHead) {
  Write(".git/HEAD", kCommit);
  EXPECT_EQ(GitCommit(workspace_), kCommit);
}

TEST_F(GitCommitTest, FindsPackedRefs) {
  Write(".git/HEAD", "ref: refs/heads/main");
  Write(".git/packed-refs", "# pack-refs with: peeled\n" +
                                std::string(40, 'f') + " refs/heads/main2\n" +
                                kCommit + " refs/heads/main");
  EXPECT_EQ(GitCommit(workspace_), kCommit);
}

TEST_F(GitCommitTest, FollowsAWorktreeToItsRepository) {
  Write("tree/.git", "gitdir: ../repo/worktrees/tree");
  Write("repo/worktrees/tree/HEAD", "ref: refs/heads/b");
  Write("repo/worktrees/tree/commondir", "../..");
  Write("repo/refs/heads/b", kCommit);
  EXPECT_EQ(GitCommit(workspace_ + "/tree"), kCommit);
}

TEST_F(GitCommitTest, IsEmptyWithoutACommit) {
  EXPECT_EQ(GitCommit(""), "");
  EXPECT_EQ(GitCommit(workspace_), "");
  Write(".git/HEAD", "ref: refs/heads/unborn");
  EXPECT_EQ(GitCommit(workspace_), "");
  Write(".git/HEAD", "nonsense");
  EXPECT_EQ(GitCommit(workspace_), "");
}

}  // namespace
}  // namespace rankwise
