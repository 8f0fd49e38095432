// What goes wrong between hosts: wrong interfaces, links that fail, hosts that
// vanish. Whoever is left says what and where, and ends in time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Ranks = std::vector<std::unique_ptr<TestProcess>>;

constexpr char kDdp[] =
    "trainers/ddp --model=mlp --train_size=256 --batch_size=32 --eval=false "
    "--threads=1 --log_every=1 ";

// Two hosts with two ranks each. More steps than anyone waits for.
Ranks StartLongJob(const Cluster& cluster, const std::string& timeout) {
  Ranks ranks = StartRanks(
      cluster, 2, 2,
      absl::StrCat(kDdp, "--epochs=1000000 --collective_timeout=", timeout));
  EXPECT_TRUE(ranks[0]->AwaitOutput("step", 5)) << ranks[0]->Stderr();
  return ranks;
}

// All of `ranks` end with an error that matches, in the 5 s of the collective's
// time-out, 2.5 for the questions and what it takes a busy machine to end.
void ExpectErrors(const Ranks& ranks, const std::vector<int>& those,
                  const std::string& regex) {
  const SteadyTime start = SteadyNow();
  for (const int rank : those) {
    const TestProcess& process = *ranks[static_cast<size_t>(rank)];
    EXPECT_GT(ranks[static_cast<size_t>(rank)]->Wait(absl::Seconds(20)), 0);
    EXPECT_THAT(process.Stderr(),
                ContainsRegex(absl::StrCat("ddp: rank ", rank,
                                           ": error: [^\n]*", regex)));
  }
  std::printf("all ended %.1f s after the fault\n",
              absl::ToDoubleSeconds(ElapsedSince(start)));
}

using FaultsTest = ClusterTest;

TEST_F(FaultsTest, AHostThatVanishesIsNamedByTheSurvivors) {
  const Ranks ranks = StartLongJob(cluster(), "5s");
  cluster().Destroy(2);
  ExpectErrors(ranks, {0, 1},
               "rank 2 [(]dp 2, host2[)] gives no sign of life [^\n]*rank 3 "
               "[(]dp 3, host2[)] gives no sign of life");
  EXPECT_THAT(cluster().ProgramsOn(1), IsEmpty());
}

TEST_F(FaultsTest, TheHostOfRankZeroTakesTheStoreAlong) {
  const Ranks ranks = StartLongJob(cluster(), "5s");
  cluster().Destroy(1);
  ExpectErrors(ranks, {2, 3},
               "the ranks' store at host1:29500 does not answer [^\n]*its "
               "machine cut off from this one");
  EXPECT_THAT(cluster().ProgramsOn(2), IsEmpty());
}

TEST_F(FaultsTest, ALinkThatStaysDownEndsBothSides) {
  const Ranks ranks = StartLongJob(cluster(), "5s");
  cluster().SetLink(2, false);
  ExpectErrors(ranks, {0, 1}, "rank 2 [(]dp 2, host2[)] gives no sign of life");
  ExpectErrors(ranks, {2, 3},
               "the ranks' store at host1:29500 does not answer");
  EXPECT_THAT(cluster().ProgramsOn(1), IsEmpty());
  EXPECT_THAT(cluster().ProgramsOn(2), IsEmpty());
}

TEST_F(FaultsTest, ALinkThatComesBackInTimeCostsOnlyTime) {
  Ranks ranks = StartRanks(cluster(), 2, 2, absl::StrCat(kDdp, "--epochs=60"));
  ASSERT_TRUE(ranks[0]->AwaitOutput("step", 5)) << ranks[0]->Stderr();
  cluster().SetLink(2, false);
  absl::SleepFor(absl::Seconds(3));
  const std::string before = ranks[0]->Stdout();
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_EQ(ranks[0]->Stdout(), before);  // it waits
  EXPECT_THAT(before, Not(HasSubstr("epoch 60 mean training loss")));
  cluster().SetLink(2, true);
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  EXPECT_THAT(ranks[0]->Stdout(), HasSubstr("epoch 60 mean training loss"));
}

class InterfacesTest : public ClusterTest {
 protected:
  Ranks Start(const std::string& interface) {
    return StartRanks(cluster(), 2, 1,
                      absl::StrCat(kDdp, "--epochs=1 --rendezvous_timeout=5s"),
                      absl::StrCat("GLOO_SOCKET_IFNAME=", interface));
  }

  // On both hosts, where $N is the host's number.
  void RunOnBoth(const std::string& command) {
    for (const int host : {1, 2}) {
      const Finished done =
          cluster().Run(absl::StrCat("host", host),
                        absl::StrCat("set -e; N=", host, "; ", command));
      ASSERT_EQ(done.code, 0) << done.err;
    }
  }
};

TEST_F(InterfacesTest, TheNamedOneCarriesTheTraffic) {
  RunOnBoth(
      "ip link add link eth0 eth1 type macvlan mode bridge; "
      "ip address add 10.9.0.$N/24 dev eth1; ip link set eth1 up");
  for (const auto& rank : Start("eth1"))
    EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  const Finished sent =
      cluster().Run("host2", "cat /sys/class/net/eth1/statistics/tx_bytes");
  int64_t bytes = 0;
  ASSERT_TRUE(absl::SimpleAtoi(sent.out, &bytes)) << sent.out;
  EXPECT_GT(bytes, 4 * 7364648);  // 4 steps with the gradients of 1.8 M weights
}

TEST_F(InterfacesTest, OneThatIsMissingIsNamedWithThoseThatAreThere) {
  const Ranks ranks = Start("eth9");
  ExpectErrors(ranks, {0, 1},
               "rank 0 on host1 has no interface eth9 that is up[^\n]*"
               "GLOO_SOCKET_IFNAME: host1 has lo [(]127.0.0.1[)], eth0 "
               "[(]192.168.77.1[)]");
}

TEST_F(InterfacesTest, TheLoopbackLeadsToNoOtherHost) {
  ExpectErrors(Start("lo"), {0, 1},
               "rank 0 at 127.0.0.1 [(]lo of host1[)] cannot be reached by "
               "rank 1 on host2");
}

// As a container engine makes it on every machine.
TEST_F(InterfacesTest, ABridgeThatIsTheSameOnAllHosts) {
  RunOnBoth(
      "ip link add docker0 type bridge; "
      "ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up");
  ExpectErrors(Start("docker0"), {0, 1},
               "rank 0 at 172.17.0.1 [(]docker0 of host1[)] and rank 1 at "
               "172.17.0.1 [(]docker0 of host2[)] have the same address");
}

TEST_F(InterfacesTest, ANetworkThatEndsAtTheHostIsNamedAfterTheTimeOut) {
  RunOnBoth(
      "ip link add inner0 type bridge; "
      "ip address add 10.9.$N.1/24 dev inner0; ip link set inner0 up; "
      "ip route add blackhole 10.9.0.0/16");
  ExpectErrors(Start("inner0"), {0, 1},
               "10[.]9[.]1[.]1 [(]inner0 of host1[)][^\n]*name another "
               "interface in GLOO_SOCKET_IFNAME");
}

}  // namespace
}  // namespace rankwise
