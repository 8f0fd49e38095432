#include "parallel/comm/backends/shared_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using c10d::ReduceOp;
using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;
using torch::Tensor;

constexpr milliseconds kLong(30000);
constexpr int64_t kFloatsPerSlot = 1 << 18;

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::DistBackendError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

// Runs ranks 10, 11, ... of a job, each on a thread.
void OnRanks(int size, const std::function<void(int, SharedMemory&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<int> ranks;
  for (int place = 0; place < size; ++place) ranks.push_back(10 + place);
  std::vector<std::thread> threads;
  for (int place = 0; place < size; ++place) {
    threads.emplace_back([&, place] {
      SharedMemory memory(*store, ranks, place);
      body(place, memory);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor DataOf(int place, int64_t size, at::ScalarType dtype) {
  return (at::arange(size, at::kLong).remainder(5) + place + 1).to(dtype);
}

Tensor Reduced(int ranks, int64_t size, at::ScalarType dtype,
               const ReduceOp& op) {
  std::vector<Tensor> all;
  for (int place = 0; place < ranks; ++place)
    all.push_back(DataOf(place, size, dtype));
  const Tensor stacked = at::stack(all);
  if (op == ReduceOp::SUM) return stacked.sum(0).to(dtype);
  if (op == ReduceOp::PRODUCT) return stacked.prod(0).to(dtype);
  return op == ReduceOp::MAX ? stacked.amax(0) : stacked.amin(0);
}

TEST(SharedMemoryTest, AllReduceReducesInPlace) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](int place, SharedMemory& memory) {
      for (const at::ScalarType dtype :
           {at::kFloat, at::kLong, at::kBFloat16}) {
        for (const auto op :
             {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MAX, ReduceOp::MIN}) {
          Tensor data = DataOf(place, 7, dtype);
          memory.AllReduce(data, op, kLong);
          EXPECT_TRUE(data.equal(Reduced(ranks, 7, dtype, op)))
              << dtype << " " << op;
        }
      }
    });
  }
}

TEST(SharedMemoryTest, DataMayBeLargerThanASlotOrSmallerThanTheGroup) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](int place, SharedMemory& memory) {
      for (const int64_t size :
           {int64_t{0}, int64_t{1}, 3 * kFloatsPerSlot + 5}) {
        Tensor data = DataOf(place, size, at::kFloat);
        memory.AllReduce(data, ReduceOp::SUM, kLong);
        const Tensor sum = Reduced(ranks, size, at::kFloat, ReduceOp::SUM);
        EXPECT_TRUE(data.equal(sum)) << size;

        const Tensor own = DataOf(place, size, at::kFloat);
        const Tensor gathered = at::zeros({ranks * size});
        memory.AllGather(gathered, own, kLong);
        for (int peer = 0; peer < ranks; ++peer) {
          EXPECT_TRUE(gathered.narrow(0, peer * size, size)
                          .equal(DataOf(peer, size, at::kFloat)));
        }

        const Tensor part = at::zeros({size});
        memory.ReduceScatter(part, gathered * (place + 1), ReduceOp::SUM,
                             kLong);
        EXPECT_TRUE(part.equal(DataOf(place, size, at::kFloat) *
                               (ranks * (ranks + 1) / 2)));
      }
    });
  }
}

TEST(SharedMemoryTest, AllRanksRoundAlike) {
  std::vector<Tensor> results(3);
  OnRanks(3, [&](int place, SharedMemory& memory) {
    at::manual_seed(0);
    Tensor data = at::linspace(0.1, 0.9, 1000) * (place + 0.3);
    memory.AllReduce(data, ReduceOp::SUM, kLong);
    results[static_cast<size_t>(place)] = data;
  });
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_TRUE(results[0].equal(results[2]));
}

TEST(SharedMemoryTest, MessagesComeByTagAndInOrder) {
  OnRanks(2, [](int place, SharedMemory& memory) {
    const auto message = [](int tag, int i) {
      return at::full({3 + tag}, 100.0 * tag + i);
    };
    constexpr int kMessages = 300;
    if (place == 0) {
      for (int i = 0; i < kMessages; ++i) {
        for (const int tag : {0, 1}) memory.Send(message(tag, i), 1, tag);
      }
      return;
    }
    for (const int tag : {1, 0}) {
      for (int i = 0; i < kMessages; ++i) {
        Tensor received = at::zeros({3 + tag});
        memory.Receive(received, 0, tag, kLong);
        EXPECT_TRUE(received.equal(message(tag, i))) << tag << " " << i;
      }
    }
  });
}

int64_t SharedKilobytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word && word != "RssShmem:") {
  }
  status >> kilobytes;
  return kilobytes;
}

TEST(SharedMemoryTest, MemoryOfMessagesIsUsedAgain) {
  constexpr int kMessages = 64, kKilobytes = 1024;
  OnRanks(2, [](int place, SharedMemory& memory) {
    Tensor data = at::ones({kKilobytes * 256}), answer = at::zeros({1});
    const int64_t before = SharedKilobytes();
    for (int i = 0; i < kMessages; ++i) {
      if (place == 0) {
        memory.Send(data, 1, 0);
        memory.Receive(answer, 1, 0, kLong);
      } else {
        memory.Receive(data, 0, 0, kLong);
        memory.Send(answer, 0, 0);
      }
    }
    EXPECT_LT(SharedKilobytes() - before, kMessages * kKilobytes / 4);
  });
}

TEST(SharedMemoryTest, MemoryOfSmallMessagesIsUsedAgain) {
  constexpr int kMessages = 100000;
  OnRanks(2, [](int place, SharedMemory& memory) {
    Tensor data = at::ones({2});
    const int64_t before = SharedKilobytes();
    for (int i = 0; i < kMessages; ++i) {
      if (place == i % 2)
        memory.Send(data, 1 - place, 0);
      else
        memory.Receive(data, 1 - place, 0, kLong);
    }
    EXPECT_LT(SharedKilobytes() - before, 1024);
  });
}

TEST(SharedMemoryTest, OtherMessagesDoNotExtendAReceivesTimeout) {
  OnRanks(2, [](int place, SharedMemory& memory) {
    Tensor data = at::ones({1});
    if (place == 1) {
      EXPECT_THAT(
          ErrorOf([&] { memory.Receive(data, 0, 1, milliseconds(100)); }),
          HasSubstr("timed out after 100 ms"));
      return memory.Send(data, 0, 0);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < end) {
      memory.Send(data, 1, 0);
      std::this_thread::sleep_for(milliseconds(10));
    }
    memory.Receive(data, 1, 0, milliseconds(1));
  });
}

TEST(SharedMemoryTest, AMessageThatIsNotWhatIsExpectedFails) {
  OnRanks(2, [](int place, SharedMemory& memory) {
    if (place == 0) return memory.Send(at::zeros({2}), 1, 0);
    Tensor data = at::zeros({3});
    EXPECT_EQ(ErrorOf([&] { memory.Receive(data, 0, 0, kLong); }),
              "shared memory: a message from rank 10 of 12 bytes: it has 8 "
              "bytes");
  });
}

TEST(SharedMemoryTest, AMessageCanBePolled) {
  std::atomic<bool> polled = false;
  OnRanks(2, [&](int place, SharedMemory& memory) {
    Tensor data = at::full({2}, place);
    if (place == 0) {
      while (!polled) std::this_thread::yield();
      return memory.Send(data, 1, 3);
    }
    EXPECT_FALSE(memory.TryReceive(data, 0, 3));
    polled = true;
    while (!memory.TryReceive(data, 0, 3)) std::this_thread::yield();
    EXPECT_TRUE(data.equal(at::zeros({2})));
    // The sender leaves.
    EXPECT_THAT(ErrorOf([&] {
                  while (!memory.TryReceive(data, 0, 3))
                    std::this_thread::yield();
                }),
                HasSubstr("rank 10 has left"));
  });
}

int64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// A process has 128 TiB of address space for all groups of a job.
TEST(SharedMemoryTest, ALargeGroupTakesLittleAddressSpace) {
  c10d::HashStore store;
  std::vector<int> ranks;
  for (int rank = 0; rank < 128; ++rank) {
    ranks.push_back(rank);
    store.set("memory/" + std::to_string(rank), std::vector<uint8_t>{'0'});
  }
  const int64_t before = MappedBytes();
  const SharedMemory memory(store, ranks, 0);
  EXPECT_LT(MappedBytes() - before, int64_t{300} << 30);
}

// A parameter server continues with the remaining workers.
TEST(SharedMemoryTest, AMessageThatDoesNotComeFailsNoOther) {
  OnRanks(3, [](int place, SharedMemory& memory) {
    if (place == 1) return;
    Tensor data = at::zeros({1});
    if (place == 2) return memory.Send(data, 0, 0);
    EXPECT_THAT(ErrorOf([&] { memory.Receive(data, 1, 0, kLong); }),
                HasSubstr("rank 11 has left"));
    EXPECT_THAT(
        ErrorOf([&] { memory.Receive(data, 2, 1, milliseconds(1)); }),
        AnyOf(HasSubstr("timed out after 1 ms"), HasSubstr("has left")));
    memory.Receive(data, 2, 0, kLong);
  });
}

// Sent messages arrive, and later receives fail.
TEST(SharedMemoryTest, MessagesOutliveTheirSender) {
  OnRanks(2, [](int place, SharedMemory& memory) {
    if (place == 0) return memory.Send(at::ones({2}), 1, 0);
    Tensor data = at::zeros({2});
    memory.Receive(data, 0, 0, kLong);
    EXPECT_TRUE(data.equal(at::ones({2})));
    EXPECT_EQ(ErrorOf([&] { memory.Receive(data, 0, 0, kLong); }),
              "shared memory: a message from rank 10 of 8 bytes: rank 10 has "
              "left");
  });
}

TEST(SharedMemoryTest, ARankThatHasLeftIsNamed) {
  OnRanks(2, [&](int place, SharedMemory& memory) {
    Tensor data = at::ones({4});
    memory.AllReduce(data, ReduceOp::SUM, kLong);
    if (place == 1) return;
    EXPECT_EQ(ErrorOf([&] { memory.AllReduce(data, ReduceOp::SUM, kLong); }),
              "shared memory: all_reduce of 16 bytes of Float: rank 11 has "
              "left");
  });
}

TEST(SharedMemoryTest, AnotherCollectiveOfAPeerIsNoResult) {
  OnRanks(2, [&](int place, SharedMemory& memory) {
    Tensor data = at::ones({place + 1});
    EXPECT_THAT(ErrorOf([&] { memory.AllReduce(data, ReduceOp::SUM, kLong); }),
                AnyOf(HasSubstr("rank 10 calls all_reduce of 4 bytes"),
                      HasSubstr("rank 11 calls all_reduce of 8 bytes")));
    EXPECT_THAT(ErrorOf([&] { memory.AllReduce(data, ReduceOp::SUM, kLong); }),
                HasSubstr("an earlier collective failed"));
  });
}

TEST(SharedMemoryTest, ALateRankIsWaitedForUntilTheTimeout) {
  OnRanks(2, [&](int place, SharedMemory& memory) {
    Tensor data = at::ones({1});
    if (place == 0) {
      EXPECT_THAT(ErrorOf([&] {
                    memory.AllReduce(data, ReduceOp::SUM, milliseconds(50));
                  }),
                  HasSubstr("timed out after 50 ms of waiting for rank 11"));
    } else {
      std::this_thread::sleep_for(milliseconds(150));
      EXPECT_THAT(
          ErrorOf([&] { memory.AllReduce(data, ReduceOp::SUM, kLong); }),
          HasSubstr("an earlier collective failed"));
    }
  });
}

TEST(SharedMemoryTest, AbortFailsWhatPeersWaitFor) {
  OnRanks(2, [&](int place, SharedMemory& memory) {
    Tensor data = at::ones({1});
    if (place == 0) {
      EXPECT_THAT(
          ErrorOf([&] { memory.AllReduce(data, ReduceOp::SUM, kLong); }),
          HasSubstr("has given up"));
    } else {
      std::this_thread::sleep_for(milliseconds(50));
      memory.Abort();
    }
  });
}

TEST(SharedMemoryTest, ADeadProcessIsNamed) {
  const std::string path = testing::TempDir() + "/dead.store";
  const pid_t child = fork();
  c10d::FileStore store(path, 2);
  SharedMemory memory(store, {0, 1}, child == 0 ? 1 : 0);
  if (child == 0) _exit(0);  // without running destructors
  Tensor data = at::ones({1});
  EXPECT_THAT(ErrorOf([&] { memory.AllReduce(data, ReduceOp::SUM, kLong); }),
              HasSubstr("rank 1 has ended"));
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace rankwise
