#include "trainers/checkpoint/folder_lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FolderLockTest : public testing::Test {
 protected:
  FolderLockTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  std::string Refusal() const {
    const auto lock = FolderLock::Take(dir_, "ddp");
    EXPECT_EQ(lock.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(lock.status().message());
  }

  const fs::path dir_;
};

TEST_F(FolderLockTest, NamesItsHolderAndGoesWithIt) {
  std::optional<FolderLock> lock = *FolderLock::Take(dir_, "fsdp");
  EXPECT_THAT(
      Refusal(),
      AllOf(HasSubstr(absl::StrCat("in use by fsdp, process ", getpid(),
                                   " on host ")),
            HasSubstr("supersede each other's checkpoints"),
            HasSubstr(absl::StrCat("delete ", (dir_ / "job.lock").string()))));
  lock.reset();
  EXPECT_TRUE(fs::is_empty(dir_));
  EXPECT_TRUE(FolderLock::Take(dir_, "ddp").ok());
}

TEST_F(FolderLockTest, AKilledHolderLeavesNothingToCleanUp) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::Take(dir_, "ddp");
    const char held = lock.ok() ? 1 : 0;
    if (write(ready[1], &held, 1) == 1) pause();
    _exit(1);
  }
  char held = 0;
  ASSERT_EQ(read(ready[0], &held, 1), 1);
  ASSERT_EQ(held, 1);
  EXPECT_THAT(Refusal(), HasSubstr(absl::StrCat("process ", child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(dir_ / "job.lock"));
  EXPECT_TRUE(FolderLock::Take(dir_, "ddp").ok());
}

// The fix given in the error message.
TEST_F(FolderLockTest, ADeletedFileIsTakenOver) {
  std::optional<FolderLock> stale = *FolderLock::Take(dir_, "ddp");
  fs::remove(dir_ / "job.lock");
  const auto lock = FolderLock::Take(dir_, "ddp");
  ASSERT_TRUE(lock.ok()) << lock.status();
  stale.reset();
  EXPECT_TRUE(fs::exists(dir_ / "job.lock")) << "the new one";
  Refusal();
}

TEST_F(FolderLockTest, AFolderThatCannotBeWrittenToIsAnError) {
  const auto lock = FolderLock::Take(dir_ / "missing", "ddp");
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr("job.lock"));
}

}  // namespace
}  // namespace rankwise
