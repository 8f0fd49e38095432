#include "parallel/comm/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/launch/network.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RankEnv Rank(int rank, int world_size, int port) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
  env.master_addr = "127.0.0.1";
  env.master_port = port;
  env.store_is_external = true;
  return env;
}

RendezvousConfig Within(absl::Duration timeout) {
  RendezvousConfig config;
  config.timeout = timeout;
  return config;
}

std::string MessageOf(const absl::StatusOr<StoreConnection>& connection) {
  return std::string(connection.status().message());
}

std::string FreshPath(const std::string& name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name, "_", getpid());
}

// A port of the loopback interface that is taken but refuses connections.
class RefusingPort {
 public:
  RefusingPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, generic, length), 0);
    EXPECT_EQ(getsockname(fd_, generic, &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~RefusingPort() { close(fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(RendezvousTest, AloneAProcessServesItself) {
  const absl::StatusOr<StoreConnection> alone =
      Rendezvous(RankEnv{}, Within(absl::Seconds(10)));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(alone->is_server);
  alone->store->set("key", "value");
  EXPECT_EQ(alone->second_store->get_to_str("key"), "value");
}

TEST(RendezvousTest, RanksMeetInAHostedStore) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([rank, port = hosted->port] {
      const auto met =
          Rendezvous(Rank(rank, 3, port), Within(absl::Seconds(30)));
      ASSERT_TRUE(met.ok()) << met.status();
      EXPECT_FALSE(met->is_server);
      met->store->add("seen", 1);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(hosted->store->add("seen", 0), 3) << "the same part of the store";
}

TEST(RendezvousTest, RankZeroServesTheStoreWhenNobodyElseDoes) {
  for (const std::string address : {"127.0.0.1", "127.0.1.1"}) {
    absl::StatusOr<Listener> free = Listen(/*loopback_only=*/false, 0);
    ASSERT_TRUE(free.ok());
    close(free->fd);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([rank, address, port = free->port] {
        RankEnv env = Rank(rank, 2, port);
        env.master_addr = address;
        env.store_is_external = false;
        const auto met = Rendezvous(env, Within(absl::Seconds(30)));
        ASSERT_TRUE(met.ok()) << address << ": " << met.status();
        EXPECT_EQ(met->is_server, rank == 0);
        if (rank == 0) met->store->wait({"done"});
        if (rank == 1) met->store->set("done", "");
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(RendezvousTest, MissingRanksAreListed) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  const auto met =
      Rendezvous(Rank(1, 4, hosted->port), Within(absl::Milliseconds(700)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(met.status())) << met.status();
  EXPECT_THAT(MessageOf(met),
              AllOf(HasSubstr("rendezvous of rank 1 of 4: ranks 0, 2, 3 have "
                              "not arrived at the store at 127.0.0.1:"),
                    HasSubstr("within 700ms")));
  const std::optional<Blame> blame = RootBlameOf(*hosted->store, 1);
  ASSERT_TRUE(blame.has_value()) << "the launcher must know, too";
  EXPECT_EQ(blame->rank, 0);
}

// Only a program may set the level of c10's log (PrepareRankProcess).
TEST(RendezvousTest, LeavesTheLogLevelOfTheProcessAlone) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  const int before = FLAGS_caffe2_log_level;
  std::thread waiting([port = hosted->port] {
    (void)Rendezvous(Rank(1, 2, port), Within(absl::Seconds(1)));
  });
  hosted->store->wait({"arrival/1"});
  const int meanwhile = FLAGS_caffe2_log_level;
  waiting.join();
  EXPECT_EQ(meanwhile, before);
}

TEST(RendezvousTest, ARefusedPortIsNamed) {
  const RefusingPort refusing;
  const auto met =
      Rendezvous(Rank(1, 2, refusing.port()), Within(absl::Milliseconds(300)));
  EXPECT_TRUE(absl::IsUnavailable(met.status())) << met.status();
  EXPECT_THAT(MessageOf(met),
              AllOf(HasSubstr("nothing listens at MASTER_ADDR:MASTER_PORT = "
                              "127.0.0.1:"),
                    HasSubstr("connection refused")));
}

TEST(RendezvousTest, AnAddressThatDoesNotResolveIsNamed) {
  RankEnv env = Rank(1, 2, 12345);
  env.master_addr = "no-such-host.invalid";
  const auto met = Rendezvous(env, Within(absl::Milliseconds(300)));
  EXPECT_TRUE(absl::IsUnavailable(met.status())) << met.status();
  EXPECT_THAT(MessageOf(met), HasSubstr("MASTER_ADDR 'no-such-host.invalid' "
                                        "does not resolve to an address"));
}

TEST(RendezvousTest, AnAddressThatCannotBeReachedIsNamed) {
  RankEnv env = Rank(1, 2, 12345);
  env.master_addr = "255.255.255.255";  // TCP has no broadcast
  const auto met = Rendezvous(env, Within(absl::Milliseconds(500)));
  EXPECT_TRUE(absl::IsUnavailable(met.status())) << met.status();
  EXPECT_THAT(MessageOf(met), AllOf(HasSubstr("MASTER_ADDR 255.255.255.255"),
                                    HasSubstr("cannot be reached")));
}

TEST(RendezvousTest, ATakenPortIsNamed) {
  const RefusingPort taken;
  RankEnv env = Rank(0, 2, taken.port());
  env.store_is_external = false;
  const auto met = Rendezvous(env, Within(absl::Seconds(1)));
  EXPECT_TRUE(absl::IsAlreadyExists(met.status())) << met.status();
  EXPECT_THAT(MessageOf(met), HasSubstr("is already in use"));
}

TEST(RendezvousTest, TwoProcessesWithOneRankAreRefused) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  const RankEnv env = Rank(0, 1, hosted->port);
  EXPECT_TRUE(Rendezvous(env, Within(absl::Seconds(10))).ok());
  const auto second = Rendezvous(env, Within(absl::Seconds(10)));
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_THAT(MessageOf(second), HasSubstr("has already claimed rank 0"));
}

TEST(RendezvousTest, ARestartedJobMeetsAfreshInTheSameStore) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  RankEnv env = Rank(0, 1, hosted->port);
  EXPECT_TRUE(Rendezvous(env, Within(absl::Seconds(10))).ok());
  env.restart_count = 1;
  EXPECT_TRUE(Rendezvous(env, Within(absl::Seconds(10))).ok());
}

// Sets restart counts as torchrun's agents on two hosts may. All starts share a
// store that contains the keys of the earlier ones.
TEST(RendezvousTest, RanksOfTorchrunWhoseAgentsCountDifferentlyMeet) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  for (const auto& [count_of_0, count_of_1] :
       {std::pair(0, 0), std::pair(1, 0), std::pair(1, 1), std::pair(1, 2)}) {
    std::vector<std::thread> ranks;
    for (const int rank : {1, 0}) {
      RankEnv env = Rank(rank, 2, hosted->port);
      env.launcher = "torchrun";
      env.restart_count = rank == 0 ? count_of_0 : count_of_1;
      ranks.emplace_back([env] {
        const auto met = Rendezvous(env, Within(absl::Seconds(30)));
        EXPECT_TRUE(met.ok()) << met.status();
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(RendezvousTest, DifferentWorldSizesAreRefused) {
  const absl::StatusOr<HostedStore> hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  std::thread other([port = hosted->port] {
    (void)Rendezvous(Rank(1, 3, port), Within(absl::Milliseconds(100)));
  });
  other.join();
  const auto met =
      Rendezvous(Rank(0, 2, hosted->port), Within(absl::Seconds(10)));
  EXPECT_TRUE(absl::IsInvalidArgument(met.status())) << met.status();
  EXPECT_THAT(MessageOf(met), HasSubstr("rank 1 says 3, rank 0 says 2"));
}

TEST(RendezvousTest, RanksMeetInAFile) {
  RendezvousConfig config = Within(absl::Seconds(30));
  config.file_store = FreshPath("meeting");
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, config] {
      const auto met = Rendezvous(Rank(rank, 2, 1), config);
      EXPECT_TRUE(met.ok()) << met.status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(RendezvousTest, AFileInNoFolderIsNamed) {
  RendezvousConfig config = Within(absl::Seconds(1));
  config.file_store = FreshPath("no_such_folder") + "/store";
  const auto met = Rendezvous(Rank(0, 1, 1), config);
  EXPECT_FALSE(met.ok());
  EXPECT_THAT(MessageOf(met),
              AllOf(HasSubstr("no_such_folder"), HasSubstr("No such file")));
}

TEST(RendezvousTest, AFileThatIsNoStoreIsRefused) {
  RendezvousConfig config = Within(absl::Seconds(1));
  config.file_store = FreshPath("garbage");
  std::ofstream(config.file_store) << std::string(1000, 'x');
  const auto met = Rendezvous(Rank(0, 1, 1), config);
  EXPECT_FALSE(met.ok());
  EXPECT_THAT(MessageOf(met),
              AllOf(HasSubstr("garbage"), HasSubstr("is not a file store")));
}

}  // namespace
}  // namespace rankwise
