// Tests the network interface over which Gloo connects the ranks: the choice of
// the right one, and the error for a wrong one.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

class InterfacesTest : public ClusterTest {
 protected:
  Ranks Start(const std::string& interface) {
    return StartRanks(
        cluster(), 2, 1,
        "trainers/ddp --model=mlp --train_size=256 --batch_size=32 "
        "--epochs=1 --eval=false --threads=1 "
        "--rendezvous_timeout=5s",
        absl::StrCat("GLOO_SOCKET_IFNAME=", interface));
  }

  // Runs the command on both hosts; $N is the host's number.
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
      cluster().Run("host2", "awk '/eth1:/ { print $10 }' /proc/net/dev");
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

// As created by a container engine on every machine.
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
               "10[.]9[.]1[.]1 [(]inner0 of host1[)][^\n]*set "
               "GLOO_SOCKET_IFNAME to another interface");
}

}  // namespace
}  // namespace rankwise
