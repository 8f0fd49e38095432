// Tests the hosts: isolated from each other, connected by links of the
// requested rate, and removed without leftovers.

#include "tests/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a process and all of its descendants.
std::vector<pid_t> FamilyOf(pid_t pid) {
  std::vector<pid_t> family = {pid};
  for (size_t i = 0; i < family.size(); ++i) {
    for (const pid_t child : ChildrenOf(family[i])) family.push_back(child);
  }
  return family;
}

TEST_F(ClusterTest, HostsHaveNamesAddressesAndMemoryOfTheirOwn) {
  EXPECT_EQ(cluster().Run("host1", "hostname").out, "host1\n");
  EXPECT_EQ(cluster().Run("host2", "hostname").out, "host2\n");
  EXPECT_THAT(cluster().Run("host2", "ip -brief address show dev eth0").out,
              HasSubstr("192.168.77.2/24"));
  EXPECT_EQ(cluster().Run("host1", "touch /dev/shm/x && ls /dev/shm").out,
            "x\n");
  EXPECT_EQ(cluster().Run("host2", "ls /dev/shm").out, "");
  // There is no route to the outside.
  EXPECT_EQ(cluster().Run("host1", "ip route show default").out, "");
}

TEST_F(ClusterTest, AHostReachesAnotherOneUntilItsLinkIsDown) {
  const std::string answer =
      "timeout 1 bash -c 'exec 3<>/dev/tcp/host2/4711' 2>&1 || true";
  EXPECT_THAT(cluster().Run("host1", answer).out, HasSubstr("refused"));
  cluster().SetLink(2, false);
  EXPECT_EQ(cluster().Run("host1", answer).out, "");  // no answer
  cluster().SetLink(2, true);
  EXPECT_THAT(cluster().Run("host1", answer).out, HasSubstr("refused"));
}

TEST_F(ClusterTest, ADestroyedHostHasNoProcesses) {
  auto on_the_first = cluster().Start("host1", "exec sleep 1000");
  auto on_the_second = cluster().Start("host2", "echo here; exec sleep 1000");
  ASSERT_TRUE(on_the_second->AwaitOutput("here", 1));
  EXPECT_THAT(cluster().ProgramsOn(2), ElementsAre("sleep"));
  cluster().Destroy(2);
  EXPECT_EQ(on_the_second->Wait(), 128 + SIGKILL);
  EXPECT_THAT(cluster().ProgramsOn(1), ElementsAre("sleep"));
  EXPECT_THAT(cluster().ProgramsOn(2), IsEmpty());
}

TEST(ClusterEndTest, EverythingEndsWithAKilledCaller) {
  const std::string script = Runfile("tests/cluster/cluster.sh");
  // The caller is a separate bash; it has another command to run, so it does
  // not exec cluster.sh.
  TestProcess caller(
      {"/bin/bash", "-c",
       absl::StrCat(script,
                    " bash -c 'sleep 1001 & setsid sleep 1002 & echo started; "
                    "exec sleep 1003'; echo \"ended with $?\"")});
  while (!caller.AwaitOutput("started", 1, absl::Milliseconds(100))) {
    if (!caller.AwaitOutput("ended with 77", 1, absl::ZeroDuration())) continue;
    GTEST_SKIP() << caller.Stderr();
  }
  const std::vector<pid_t> family = FamilyOf(caller.pid());
  ASSERT_GE(family.size(), 8u);  // 2 hosts, 3 sleeps, and their ancestors
  caller.Signal(SIGKILL);
  caller.Wait();
  EXPECT_TRUE(AllGone(family));
}

TEST(ClusterEndTest, TheExitCodeIsTheCommands) {
  TestProcess cluster({Runfile("tests/cluster/cluster.sh"), "bash", "-c",
                       "echo \"$0 $1\"; exit 5", "two words", "$HOME"});
  const int code = cluster.Wait();
  if (code == 77) GTEST_SKIP() << cluster.Stderr();
  EXPECT_EQ(code, 5) << cluster.Stderr();
  EXPECT_EQ(cluster.Stdout(), "two words $HOME\n");
}

TEST(ClusterEndTest, SaysWhichOptionsThereAre) {
  TestProcess cluster(
      {Runfile("tests/cluster/cluster.sh"), "--host=2", "true"});
  EXPECT_EQ(cluster.Wait(), 2);
  EXPECT_THAT(cluster.Stderr(), HasSubstr("--host=2 is unknown; --hosts=1 to"));
}

}  // namespace
}  // namespace rankwise
