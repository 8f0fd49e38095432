// The launcher with real ranks: how they end, and that none survives.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/test_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr absl::Duration kGrace = absl::Seconds(5);

std::vector<std::string> Ranks(int count, const std::string& scenario) {
  return {Runfile("parallel/comm/test_rank"),
          "--nproc=" + std::to_string(count), "--scenario=" + scenario};
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(LauncherTest, RunsAllRanksAndMarksTheirLines) {
  TestProcess process(Ranks(3, "all_reduce"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  const std::string output = "\n" + process.Stdout();
  EXPECT_THAT(output, AllOf(HasSubstr("\nrank 0 of 3: sum 6\n"),
                            HasSubstr("\n[rank 1] rank 1 of 3: sum 6\n"),
                            HasSubstr("\n[rank 2] rank 2 of 3: sum 6\n")));
  EXPECT_THAT(process.Stderr(), Not(HasSubstr("[launcher]")));
  EXPECT_TRUE(AllGone(PidsIn(output)));
}

TEST(LauncherTest, SeesItsRanksEndEvenIfStartedWithSigchldIgnored) {
  signal(SIGCHLD, SIG_IGN);
  TestProcess process(Ranks(2, "all_reduce"));
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

TEST(LauncherTest, NamesARankThatExits) {
  TestProcess process(Ranks(3, "exit"));
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(ContainsRegex("\\[launcher\\] rank 1 \\(process [0-9]+\\) ended "
                          "with exit code 3; ending the other ranks"),
            HasSubstr("[launcher]   rank 1 says goodbye")));
  EXPECT_THAT(PidsIn(process.Stdout()), SizeIs(3));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, NamesARankThatIsKilledAndTheOthersSayWhatTheyMissed) {
  TestProcess process(Ranks(2, "kill"));
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(HasSubstr("ended with signal 9 (Killed)"),
            ContainsRegex("all_reduce failed on rank 0 of 2 in all_reduce "
                          "#[0-9]+ of \\[\\[1000\\]\\] float32"),
            HasSubstr("rank 1 is dead: signal 9 (Killed)")));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, ARankThatIgnoresSigtermIsGoneWithinTheGrace) {
  TestProcess process(Ranks(2, "stubborn"));
  ASSERT_TRUE(process.AwaitOutput("sum 3", 2));
  const SteadyTime start = SteadyNow();
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_LT(ElapsedSince(start),
            kGrace + absl::Seconds(5));  // a loaded machine
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

// Rank 0 notices the failure, and ends first.
TEST(LauncherTest, BlamesARankThatFailedByItselfAndNotTheOneThatNoticed) {
  std::vector<std::string> argv = Ranks(2, "own_error");
  argv.push_back("--linger=20s");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(
          ContainsRegex(
              "\\[launcher\\] rank 1 \\(process [0-9]+\\) is the cause: rank 0 "
              "\\(process [0-9]+\\) ended with exit code 1 because rank 1 "
              "failed first, in reading step 5's data; ending the other "
              "ranks; the last lines of rank 1 on stderr:"),
          HasSubstr("[launcher]   reading step 5's data failed on rank 1 of "
                    "2: the disk is on fire"),
          Not(HasSubstr("[launcher]   all_reduce failed on rank 0"))));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, AStoppedRankIsBlamedAndHoldsNobodyUp) {
  std::vector<std::string> argv = Ranks(2, "stop");
  argv.push_back("--collective_timeout=2s");
  TestProcess process(argv);
  ASSERT_TRUE(process.AwaitOutput("sum 3", 2));
  const SteadyTime start = SteadyNow();
  EXPECT_EQ(process.Wait(), 1);
  // The timeout, a second for the ranks to report their state, and a loaded
  // machine; not the interval of heartbeats, nor the delay of SIGKILL after a
  // SIGTERM that a stopped rank does not receive.
  EXPECT_LT(ElapsedSince(start), absl::Seconds(6));
  EXPECT_THAT(
      process.Stderr(),
      AllOf(
          ContainsRegex(
              "\\[launcher\\] rank 1 \\(process [0-9]+\\) is the cause: rank 0 "
              "\\(process [0-9]+\\) ended with exit code 1 because rank 1 is "
              "stopped by a signal \\(SIGSTOP\\); "),
          HasSubstr("[launcher]   rank 1 says goodbye"),
          Not(HasSubstr("has not started any collective"))));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, AStoppedRankIsKilledWhenAllOthersHaveEnded) {
  std::vector<std::string> argv = Ranks(2, "stop_at_the_end");
  argv.push_back("--collective_timeout=8s");
  TestProcess process(argv);
  ASSERT_TRUE(process.AwaitOutput("sum 3", 2));
  EXPECT_EQ(process.Wait(absl::Seconds(2)), -1);  // may still be continued
  EXPECT_EQ(process.Wait(absl::Seconds(20)), 128 + SIGKILL);
  EXPECT_THAT(process.Stderr(),
              ContainsRegex("rank 1 \\(process [0-9]+\\) is stopped by a "
                            "signal \\(SIGSTOP\\), and all other ranks have "
                            "ended; killing it"));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, AStoppedRankThatIsContinuedEndsAsUsual) {
  std::vector<std::string> argv = Ranks(2, "stop_at_the_end");
  argv.push_back("--collective_timeout=20s");
  TestProcess process(argv);
  ASSERT_TRUE(process.AwaitOutput("sum 3", 2));
  EXPECT_EQ(process.Wait(absl::Seconds(3)), -1);
  for (const pid_t rank : PidsIn(process.Stdout())) kill(rank, SIGCONT);
  EXPECT_EQ(process.Wait(absl::Seconds(10)), 0);
}

class SignalTest : public ::testing::TestWithParam<int> {};

TEST_P(SignalTest, IsForwardedAndLeavesNothingRunning) {
  TestProcess process(Ranks(2, "forever"));
  ASSERT_TRUE(process.AwaitOutput("pid ", 2)) << process.Stderr();
  process.Signal(GetParam());
  EXPECT_EQ(process.Wait(), 128 + GetParam());
  EXPECT_THAT(process.Stderr(), HasSubstr("ending the ranks"));
  EXPECT_THAT(PidsIn(process.Stdout()), SizeIs(2));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

INSTANTIATE_TEST_SUITE_P(All, SignalTest,
                         ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(LauncherTest, RestartsAFailedJobAndSaysWhy) {
  std::vector<std::string> argv = Ranks(2, "restart");
  argv.push_back("--max_restarts=2");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_THAT(
      process.Stdout(),
      AllOf(HasSubstr("rank 0, restart 0 of 2 after: \n"),
            ContainsRegex("rank 0, restart 1 of 2 after: rank 1 .process "
                          "[0-9]+. ended with signal 9 .Killed."),
            ContainsRegex("rank 1, restart 2 of 2 after: rank 1 .process "
                          "[0-9]+. ended with exit code 3")));
  EXPECT_THAT(process.Stderr(),
              HasSubstr("restart 2 of 2: starting 2 ranks again"));
  EXPECT_THAT(PidsIn(process.Stdout()), SizeIs(6));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, RestartsNoMoreOftenThanAllowedAndNotAfterBadUsage) {
  std::vector<std::string> argv = Ranks(2, "exit");
  argv.push_back("--max_restarts=1");
  TestProcess often(argv);
  EXPECT_EQ(often.Wait(), 3);
  EXPECT_THAT(PidsIn(often.Stdout()), SizeIs(4));
  argv = Ranks(2, "bad_usage");
  argv.push_back("--max_restarts=1");
  TestProcess wrong(argv);
  EXPECT_EQ(wrong.Wait(), 2);
  EXPECT_THAT(PidsIn(wrong.Stdout()), SizeIs(2));
}

// The signal goes to the launcher or to one rank; nothing is restarted.
TEST(LauncherTest, APreemptedJobExitsByItselfWithItsOwnCode) {
  for (const bool to_launcher : {true, false}) {
    std::vector<std::string> argv = Ranks(2, "preempt");
    argv.push_back("--max_restarts=3");
    TestProcess process(argv);
    ASSERT_TRUE(process.AwaitOutput("pid ", 2)) << process.Stderr();
    const std::vector<pid_t> ranks = PidsIn(process.Stdout());
    kill(to_launcher ? process.pid() : ranks[1], SIGUSR1);
    EXPECT_EQ(process.Wait(), 75) << process.Stderr();
    EXPECT_THAT(process.Stderr(), Not(HasSubstr("ended with")));
    EXPECT_THAT(PidsIn(process.Stdout()), SizeIs(2));
    EXPECT_TRUE(AllGone(ranks));
  }
}

TEST(LauncherTest, ASecondSignalEndsAPreemptedJobAtOnce) {
  TestProcess process(Ranks(2, "preempt_in_vain"));
  ASSERT_TRUE(process.AwaitOutput("pid ", 2)) << process.Stderr();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(absl::Seconds(2)), -1);
  EXPECT_THAT(process.Stderr(), HasSubstr("a second signal ends them at once"));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

// The launcher is still forking: starting a thousand ranks takes a while.
TEST(LauncherTest, ASignalWhileRanksStartEndsTheJobAtOnce) {
  for (const std::string scenario : {"forever", "preempt"}) {
    const std::string log_dir = TemporaryPath("many");
    std::vector<std::string> argv = Ranks(1000, scenario);
    argv.push_back("--log_dir=" + log_dir);
    TestProcess process(argv);
    const Deadline patience(absl::Seconds(20));
    while (access((log_dir + "/rank_2.log").c_str(), F_OK) != 0)
      ASSERT_FALSE(patience.passed()) << process.Stderr();
    process.Signal(SIGTERM);
    EXPECT_TRUE(process.AwaitError("received signal 15 (Terminated)", 1,
                                   absl::Seconds(4)));  // a loaded machine
    EXPECT_EQ(process.Wait(), scenario == "preempt" ? 75 : 128 + SIGTERM);
    EXPECT_THAT(process.Stderr(),
                ContainsRegex("ranks of 1000 not started; killing the others"));
    EXPECT_THAT(process.Stderr(), Not(HasSubstr("ended with")));
  }
}

// Runs `script` in a new network namespace, whose loopback interface is down.
TestProcess InNetwork(const std::string& script) {
  return TestProcess({"/usr/bin/unshare", "--net", "/bin/sh", "-c", script});
}

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    if (InNetwork("ip link set lo up").Wait() != 0)
      GTEST_SKIP() << "network namespaces cannot be created here";
  }
  const std::string command_ = absl::StrCat(
      "exec ", Runfile("parallel/comm/test_rank"), " --scenario=all");
};

TEST_F(NetworkTest, WithoutALoopbackInterfaceOneLineSaysWhatToDo) {
  constexpr char kAdvice[] =
      "the loopback interface is down: no interface that is up has the address "
      "127.0.0.1 or ::1, through which the processes of this machine reach "
      "each other; bring it up: ip link set lo up\n";
  TestProcess launcher = InNetwork(command_ + " --nproc=2");
  EXPECT_EQ(launcher.Wait(), 1);
  EXPECT_EQ(launcher.Stderr(),
            absl::StrCat("[launcher] cannot start 2 ranks: ", kAdvice));
  for (const int rank : {0, 1}) {
    TestProcess process = InNetwork(absl::StrCat(
        "RANK=", rank, " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=7 ",
        command_));
    EXPECT_EQ(process.Wait(), 1);
    EXPECT_EQ(process.Stderr(),
              absl::StrCat("rendezvous of rank ", rank, " of 2: ", kAdvice));
  }
}

TEST_F(NetworkTest, RanksOfAMachineWithIpv6OnlyMeetAndReduce) {
  for (const std::string backend : {"gloo", "shm"}) {
    TestProcess process = InNetwork(
        "ip link set lo up && ip address delete 127.0.0.1/8 dev lo && " +
        command_ + " --nproc=2 --backend=" + backend);
    EXPECT_EQ(process.Wait(), 0) << process.Stderr();
    EXPECT_THAT(process.Stdout(), HasSubstr("mean 0.5 root 1 last 10"));
  }
}

TEST(LauncherTest, NoRankOutlivesALauncherThatIsKilled) {
  TestProcess process(Ranks(2, "forever"));
  ASSERT_TRUE(process.AwaitOutput("pid ", 2)) << process.Stderr();
  process.Signal(SIGKILL);
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST(LauncherTest, SplitsTheOutputByRank) {
  const std::string log_dir = TemporaryPath("logs");
  std::vector<std::string> argv = Ranks(2, "exit");
  argv.push_back("--log_dir=" + log_dir);
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_THAT(process.Stdout(), AllOf(HasSubstr("rank 0 of 2: sum 3\n"),
                                      Not(HasSubstr("rank 1 of 2"))));
  EXPECT_THAT(process.Stderr(), HasSubstr(log_dir + "/rank_1.log"));
  EXPECT_THAT(ReadFile(log_dir + "/rank_0.log"),
              HasSubstr("rank 0 of 2: sum 3\n"));
  EXPECT_THAT(ReadFile(log_dir + "/rank_1.log"),
              AllOf(HasSubstr("rank 1 of 2: sum 3\n"),
                    HasSubstr("rank 1 says goodbye\n")));
}

TEST(LauncherTest, RefusesALogFolderThatCannotBe) {
  std::vector<std::string> argv = Ranks(2, "all_reduce");
  argv.push_back("--log_dir=/dev/null/logs");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(),
              HasSubstr("cannot create log_dir '/dev/null/logs'"));
}

}  // namespace
}  // namespace rankwise
