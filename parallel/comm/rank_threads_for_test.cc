#include "parallel/comm/rank_threads_for_test.h"

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

void OnFakeRanks(int world_size, const FakeBackendConfig& costs,
                 const std::function<void(FakeRank&)>& body) {
  FakeWorld world(world_size, costs);
  FakeWorld control_world(world_size, {});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<Control> control =
            MakeGroupControl(MakeFakeProcessGroup(control_world.backend(rank)));
        FakeRank view{MakeFakeProcessGroup(world.backend(rank)), *control};
        body(view);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace rankwise
