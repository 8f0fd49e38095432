#include "parallel/comm/backends/gloo_address.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

GlooAddress At(int rank, const std::string& host, const std::string& interface,
               const std::string& address) {
  return {rank,
          host,
          "network of " + host,
          interface,
          address,
          "lo (127.0.0.1), " + interface + " (" + address + ")"};
}

std::string Refusal(const std::vector<GlooAddress>& addresses) {
  const absl::Status status = CheckGlooAddresses(addresses);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(GlooAddressTest, AddressesOfOneNetworkAreFine) {
  EXPECT_TRUE(CheckGlooAddresses({At(0, "a", "eth0", "10.0.0.1"),
                                  At(1, "a", "eth0", "10.0.0.1"),
                                  At(2, "b", "eth0", "10.0.0.2")})
                  .ok());
}

TEST(GlooAddressTest, TheLoopbackIsFineWithinAMachine) {
  EXPECT_TRUE(CheckGlooAddresses({At(0, "a", "lo", "127.0.0.1"),
                                  At(1, "a", "lo", "127.0.0.1")})
                  .ok());
}

TEST(GlooAddressTest, TheLoopbackLeadsToNoOtherMachine) {
  EXPECT_EQ(
      Refusal({At(0, "a", "eth0", "10.0.0.1"), At(1, "b", "lo", "127.0.0.1")}),
      "rank 1 at 127.0.0.1 (lo of b) cannot be reached by rank 0 on a; "
      "name the interface that connects the machines in "
      "GLOO_SOCKET_IFNAME: b has lo (127.0.0.1), lo (127.0.0.1)");
}

TEST(GlooAddressTest, ABridgeThatEveryMachineHasConnectsNone) {
  EXPECT_THAT(Refusal({At(0, "a", "docker0", "172.17.0.1"),
                       At(2, "b", "docker0", "172.17.0.1")}),
              HasSubstr("rank 0 at 172.17.0.1 (docker0 of a) and rank 2 at "
                        "172.17.0.1 (docker0 of b) have the same address"));
}

TEST(GlooAddressTest, AMissingInterfaceIsNamedWithThoseThatAreThere) {
  GlooAddress missing = At(1, "b", "eth9", "");
  missing.others = "lo (127.0.0.1), eth0 (10.0.0.2)";
  EXPECT_EQ(Refusal({At(0, "a", "eth0", "10.0.0.1"), missing}),
            "rank 1 on b has no interface eth9 that is up and has an address; "
            "name the interface that connects the machines in "
            "GLOO_SOCKET_IFNAME: b has lo (127.0.0.1), eth0 (10.0.0.2)");
}

absl::Status AgreeOn(const std::string& interface) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      BackendRequest request;
      request.store = store;
      request.place = {"", {0, 1}, rank};
      request.env.master_addr = "127.0.0.1";
      request.env.network_interface = interface;
      const auto agreed = AgreeOnGlooAddresses(request);
      statuses[static_cast<size_t>(rank)] = agreed.status();
      if (agreed.ok()) {
        EXPECT_EQ(agreed->at(1).address, "127.0.0.1");
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(statuses[0], statuses[1]);
  return statuses[0];
}

TEST(GlooAddressTest, RanksOfOneMachineAgreeOnItsLoopback) {
  EXPECT_TRUE(AgreeOn("").ok());
  EXPECT_TRUE(AgreeOn("lo").ok());
}

TEST(GlooAddressTest, AllRanksRefuseAnInterfaceThatIsNotThere) {
  EXPECT_THAT(std::string(AgreeOn("nothing9").message()),
              HasSubstr("has no interface nothing9"));
}

}  // namespace
}  // namespace rankwise
