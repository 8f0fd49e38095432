// The shared-memory backend as used by engines, with ranks as threads.
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Functions.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

void OnTwoRanks(const std::function<void(int, c10d::Backend&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      BackendRequest request;
      request.env.rank = request.place.rank = rank;
      request.env.world_size = request.env.local_world_size = 2;
      request.place.ranks = {0, 1};
      request.store = store;
      const absl::StatusOr<BackendPtr> backend = MakeSharedMemory(request);
      ASSERT_TRUE(backend.ok()) << backend.status();
      body(rank, **backend);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

// The tensors span several chunks of shared memory: a rank that failed between
// two chunks would block its peer until the 5-minute timeout.
TEST(SharedMemoryBackendTest, WrongSizesAreRefusedBeforeTheRanksMeet) {
  OnTwoRanks([](int rank, c10d::Backend& backend) {
    constexpr int64_t kCount = 1 << 20;
    at::Tensor own = at::ones({kCount}), all = at::zeros({2 * kCount});
    at::Tensor small = at::zeros({kCount + 5}), none = at::zeros({0});
    at::Tensor doubles = at::zeros({2 * kCount}, at::kDouble);
    if (rank == 1) {
      EXPECT_THAT(ErrorOf([&] { backend._allgather_base(small, own); }),
                  HasSubstr("all_gather: 1048581 elements of Float on cpu are "
                            "not 1048576 of Float on cpu for each of 2 ranks"));
      EXPECT_THAT(ErrorOf([&] { backend._allgather_base(doubles, own); }),
                  HasSubstr("2097152 elements of Double on cpu are not"));
      EXPECT_THAT(ErrorOf([&] { backend._reduce_scatter_base(none, all); }),
                  HasSubstr("reduce_scatter: 2097152 elements of Float"));
    }
    const SteadyTime start = SteadyNow();
    backend._allgather_base(all, own)->wait();
    backend._reduce_scatter_base(own, all)->wait();
    EXPECT_TRUE(own.eq(2).all().item<bool>());
    EXPECT_LT(ElapsedSince(start), absl::Seconds(30));
  });
}

TEST(SharedMemoryBackendTest, AFailedReceiveStaysFailed) {
  OnTwoRanks([](int rank, c10d::Backend& backend) {
    Tensors data = {at::zeros({3})};
    if (rank == 0) return;
    const auto work = backend.recv(data, 0, /*tag=*/1);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(ErrorOf([&] { work->wait(milliseconds(10000)); }),
                  HasSubstr("rank 0 has left"));
    }
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
  });
}

TEST(SharedMemoryBackendTest, AReceiveThatIsOnlyPolledCompletes) {
  OnTwoRanks([](int rank, c10d::Backend& backend) {
    Tensors data = {at::full({3}, 1.0 + rank)};
    if (rank == 0) {
      backend.recv(data, 1, /*tag=*/0)->wait();
      data = {at::full({3}, 7.0)};
      backend.send(data, 1, /*tag=*/1)->wait();
      return;
    }
    Tensors received = {at::zeros({3})};
    const auto work = backend.recv(received, 0, /*tag=*/1);
    EXPECT_FALSE(work->isCompleted());  // sent only after the next message
    backend.send(data, 0, /*tag=*/0)->wait();
    const Deadline patience(absl::Seconds(30));
    while (!work->isCompleted()) ASSERT_FALSE(patience.passed());
    EXPECT_TRUE(received[0].eq(7).all().item<bool>());
    EXPECT_TRUE(work->wait());
  });
}

// isCompleted() must not claim completion while wait() blocks on a thread.
TEST(SharedMemoryBackendTest, AReceiveIsIncompleteWhileItIsWaitedFor) {
  OnTwoRanks([](int rank, c10d::Backend& backend) {
    Tensors data = {at::zeros({3})};
    if (rank == 0) {
      backend.recv(data, 1, /*tag=*/0)->wait();
      backend.send(data, 1, /*tag=*/1)->wait();
      return;
    }
    const auto work = backend.recv(data, 0, /*tag=*/1);
    std::thread waiter([&] { EXPECT_TRUE(work->wait()); });
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(work->isCompleted());
    Tensors go = {at::zeros({3})};
    backend.send(go, 0, /*tag=*/0)->wait();
    waiter.join();
    EXPECT_TRUE(work->isCompleted());
  });
}

}  // namespace
}  // namespace rankwise
