#include "parallel/comm/test_ranks.h"

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {
namespace {

// LibTorch 2.11 has one flight recorder per process, and each group's first
// collective writes into its map without a lock (FlightRecorderDetail.hpp,
// recordWithResetEnabled). That is unsound where ranks are threads, so tests
// switch it off before the first group reads the variable.
void DisableFlightRecorder() {
  static const int done = setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/1);
  TORCH_CHECK(done == 0, "cannot set TORCH_FR_BUFFER_SIZE");
}

std::unique_ptr<Communicator> Connect(const RankEnv& env,
                                      const std::string& store,
                                      absl::Duration collective_timeout) {
  DisableFlightRecorder();
  CommConfig config;
  config.backend = "gloo";
  config.device = "cpu";
  config.file_store = store;
  config.rendezvous_timeout = absl::Seconds(60);
  config.collective_timeout = collective_timeout;
  auto communicator = Communicator::Create(env, config);
  TORCH_CHECK(communicator.ok(), communicator.status().ToString());
  return *std::move(communicator);
}

// Runs `body(rank, store)` on one thread per rank.
void RunThreads(int world_size,
                const std::function<void(int, const std::string&)>& body) {
  static std::atomic<int> group{0};
  const std::string store =
      absl::StrCat(testing::TempDir(), "/ranks", group++, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string error = ErrorOf([&] { body(rank, store); });
      EXPECT_EQ(error, "") << "on rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::unique_ptr<Communicator> ConnectRank(int rank, int world_size,
                                          const std::string& store,
                                          absl::Duration collective_timeout) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
  return Connect(env, store, collective_timeout);
}

void OnRanks(int world_size, const std::function<void(Communicator&)>& body) {
  RunThreads(world_size, [&](int rank, const std::string& store) {
    body(*ConnectRank(rank, world_size, store));
  });
}

void OnHosts(const std::vector<int>& hosts,
             const std::function<void(Communicator&)>& body) {
  const auto count = [&](size_t end, int host) {
    return static_cast<int>(
        std::count(hosts.begin(), hosts.begin() + end, host));
  };
  const int world_size = static_cast<int>(hosts.size());
  RunThreads(world_size, [&](int rank, const std::string& store) {
    RankEnv env;
    env.rank = rank;
    env.world_size = world_size;
    env.local_rank = count(rank, hosts[rank]);
    env.local_world_size = count(hosts.size(), hosts[rank]);
    env.network_interface = "lo";
    body(*Connect(env, store, absl::Seconds(60)));
  });
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace rankwise
