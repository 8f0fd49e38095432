#include "parallel/comm/test_ranks.h"

#include <stdlib.h>

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

}  // namespace

std::unique_ptr<Communicator> ConnectRank(int rank, int world_size,
                                          const std::string& store,
                                          absl::Duration collective_timeout) {
  DisableFlightRecorder();
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
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

void OnRanks(int world_size, const std::function<void(Communicator&)>& body) {
  static std::atomic<int> group{0};
  const std::string store =
      absl::StrCat(testing::TempDir(), "/ranks", group++, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string error =
          ErrorOf([&] { body(*ConnectRank(rank, world_size, store)); });
      EXPECT_EQ(error, "") << "on rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
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
