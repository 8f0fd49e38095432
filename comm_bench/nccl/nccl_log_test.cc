#include "comm_bench/nccl/nccl_log.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {

namespace {

// Written according to the format strings of NCCL 2.28.9.
constexpr char kLog[] =
    "gpu-3:4711:4712 [0] NCCL INFO NCCL_DEBUG_SUBSYS set by environment to "
    "TUNING\n"
    "gpu-3:4711:4712 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto "
    "SIMPLE channel{Lo..Hi}={0..31}\n"
    "gpu-3:4711:4712 [0] NCCL INFO         AllReduce |           LL |\n"
    "gpu-3:4711:4712 [0] NCCL INFO AllGather: 8 Bytes -> Algo NVLS_TREE proto "
    "LL128 channel{Lo..Hi}={0..0}\n"
    "gpu-3:4711:4712 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel "
    "AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1\n";

TEST(NcclLogTest, FindsEveryChoiceOnce) {
  const NcclChoices choices = ParseNcclLog(absl::StrCat(kLog, kLog));
  EXPECT_EQ(choices.algorithm, "RING,NVLS_TREE,SYMMETRIC");
  EXPECT_EQ(choices.protocol, "SIMPLE,LL128,AllReduce_AGxLL_R");
}

TEST(NcclLogTest, CallsThatAgreeHaveOneName) {
  const NcclChoices choices = ParseNcclLog(
      "x:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel\n"
      "x:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel\n"
      "x:1:1 [0] NCCL INFO AllReduce: 9 Bytes -> Algo RING proto LL channel\n");
  EXPECT_EQ(choices.algorithm, "RING,TREE");
  EXPECT_EQ(choices.protocol, "LL");
}

TEST(NcclLogTest, LinesThatAreCutOrOfSomethingElseMeanNothing) {
  for (const char* line :
       {"", "x:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo",
        "x:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto",
        "AllReduce: 8 Bytes -> Algo RING proto LL",  // not from NCCL
        "x:1:1 [0] NCCL INFO AllReduce: many Bytes -> Algo RING proto LL "
        "channel"}) {
    EXPECT_EQ(ParseNcclLog(line).algorithm, "") << line;
    EXPECT_EQ(ParseNcclLog(line).protocol, "") << line;
  }
}

}  // namespace

namespace {

using ::testing::HasSubstr;

// Behaves like NCCL: reads its variables at the first line after Reread,
// reopens the file, and writes every line immediately.
class FakeNccl {
 public:
  void Reread() { known_ = false; }
  void Info(const std::string& line) {
    if (!known_) {
      known_ = true;
      level_ = std::getenv("NCCL_DEBUG");
      file_ = std::ofstream(std::getenv("NCCL_DEBUG_FILE"));
    }
    if (level_ == "INFO") file_ << line << std::endl;
  }

 private:
  bool known_ = false;
  std::string level_;
  std::ofstream file_;
};

class NcclLogSwitchTest : public ::testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const std::string& name : NcclLogSwitch::Variables()) {
      ::unsetenv(name.c_str());
    }
  }
};

TEST_F(NcclLogSwitchTest, HoldsWhatIsLoggedBetweenOnAndOff) {
  FakeNccl nccl;
  auto log = NcclLogSwitch::Take([&] { nccl.Reread(); });
  ASSERT_TRUE(log.ok()) << log.status();
  nccl.Info("before");
  (*log)->On();
  nccl.Info("one");
  nccl.Info("two");
  EXPECT_EQ((*log)->Off(), "one\ntwo\n");
  nccl.Info("between");
  (*log)->On();
  EXPECT_EQ((*log)->Off(), "") << "nothing was logged";
  (*log)->On();
  nccl.Info("three");
  EXPECT_EQ((*log)->Off(), "three\n");
}

TEST_F(NcclLogSwitchTest, WarningsGoToStderrBeforeTheFileIsEmptied) {
  auto log = NcclLogSwitch::Take([] {});
  ASSERT_TRUE(log.ok()) << log.status();
  const std::string path = std::getenv("NCCL_DEBUG_FILE");
  const auto write = [&path](const std::string& text) {
    std::ofstream(path, std::ios::app) << text;
  };
  testing::internal::CaptureStderr();
  write("\n[0] net.cc:12 NCCL WARN one\n");
  (*log)->On();
  std::ofstream(path, std::ios::trunc);  // like NCCL
  write("host:1:2 [0] NCCL INFO tuned\n[0] net.cc:13 NCCL WARN two\n");
  EXPECT_THAT((*log)->Off(), HasSubstr("tuned"));
  write("[0] net.cc:14 NCCL WARN three\nno warning\n");
  log->reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[0] net.cc:12 NCCL WARN one\n[0] net.cc:13 NCCL WARN two\n"
            "[0] net.cc:14 NCCL WARN three\n");
}

TEST_F(NcclLogSwitchTest, TheFileGoesWithIt) {
  auto log = NcclLogSwitch::Take([] {});
  ASSERT_TRUE(log.ok()) << log.status();
  const std::string path = std::getenv("NCCL_DEBUG_FILE");
  EXPECT_TRUE(std::filesystem::exists(path));
  log->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(NcclLogSwitchTest, TheUsersLogIsLeftAlone) {
  ::setenv("NCCL_DEBUG", "INFO", 1);
  const auto log = NcclLogSwitch::Take([] {});
  EXPECT_TRUE(absl::IsFailedPrecondition(log.status()));
  EXPECT_THAT(std::string(log.status().message()),
              HasSubstr("NCCL_DEBUG is set"));
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
}

}  // namespace

}  // namespace rankwise::comm_bench
