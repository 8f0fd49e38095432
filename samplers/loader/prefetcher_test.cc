#include "samplers/loader/prefetcher.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

Batch Numbered(int64_t number) {
  return {at::full({1}, number, at::kLong), at::full({1}, -number, at::kLong)};
}

// Returns the number of the next batch; -1 at the end.
int64_t TakeNumber(Prefetcher& prefetcher) {
  auto batch = prefetcher.Take();
  if (!batch.ok()) {
    ADD_FAILURE() << batch.status();
    return -2;
  }
  return batch->has_value() ? (*batch)->data.item<int64_t>() : -1;
}

void ExpectNumbers(Prefetcher& prefetcher, int64_t first, int64_t end) {
  for (int64_t number = first; number < end; ++number) {
    ASSERT_EQ(TakeNumber(prefetcher), number);
  }
  EXPECT_EQ(TakeNumber(prefetcher), -1);
  EXPECT_EQ(TakeNumber(prefetcher), -1);
}

class PrefetcherTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Workers, PrefetcherTest, testing::Values(0, 1, 2, 5));

TEST_P(PrefetcherTest, HandsOutInOrder) {
  Prefetcher prefetcher(GetParam(), 3);
  prefetcher.Start(
      [](int64_t number) {
        // Later batches of a round are ready before earlier ones.
        std::this_thread::sleep_for(
            std::chrono::microseconds(200 * (3 - number % 4)));
        return Numbered(number);
      },
      0, 40);
  ExpectNumbers(prefetcher, 0, 40);
}

TEST_P(PrefetcherTest, GivesNothingBeforeTheStart) {
  Prefetcher prefetcher(GetParam(), 3);
  EXPECT_EQ(TakeNumber(prefetcher), -1);
}

TEST_P(PrefetcherTest, StartsAnywhereAndAgain) {
  Prefetcher prefetcher(GetParam(), 2);
  for (int round = 0; round < 30; ++round) {
    prefetcher.Start(Numbered, 5, 25);  // mostly abandoned
    ASSERT_EQ(TakeNumber(prefetcher), 5);
    prefetcher.Start(Numbered, 7, 11);
    ExpectNumbers(prefetcher, 7, 11);
  }
  prefetcher.Start(Numbered, 4, 4);
  ExpectNumbers(prefetcher, 4, 4);
}

TEST_P(PrefetcherTest, CanBeDestroyedWhileItMakes) {
  std::atomic<int> made = 0;
  {
    Prefetcher prefetcher(GetParam(), 8);
    prefetcher.Start(
        [&made](int64_t number) { return ++made, Numbered(number); }, 0, 1000);
    TakeNumber(prefetcher);
  }
  EXPECT_GE(made.load(), 1);
  EXPECT_LE(made.load(), 9);  // at most the queue's capacity
}

TEST_P(PrefetcherTest, IsBounded) {
  std::atomic<int64_t> taken = 0;
  std::atomic<bool> too_early = false;
  Prefetcher prefetcher(GetParam(), 3);
  prefetcher.Start(
      [&](int64_t number) {
        if (number > taken + 3) too_early = true;
        return Numbered(number);
      },
      0, 200);
  for (int i = 0; i < 200; ++i) {
    ++taken;  // before the call, since Take makes room
    ASSERT_EQ(TakeNumber(prefetcher), i);
  }
  EXPECT_FALSE(too_early);
}

TEST_P(PrefetcherTest, AnExceptionBecomesAnErrorAtItsPlace) {
  Prefetcher prefetcher(GetParam(), 4);
  prefetcher.Start(
      [](int64_t number) {
        if (number >= 2) throw std::runtime_error("the disk is gone");
        return Numbered(number);
      },
      0, 10);
  EXPECT_EQ(TakeNumber(prefetcher), 0);
  EXPECT_EQ(TakeNumber(prefetcher), 1);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = prefetcher.Take().status();
    EXPECT_TRUE(absl::IsInternal(status));
    EXPECT_EQ(std::string(status.message()),
              "making batch 2 failed: the disk is gone");
  }
  prefetcher.Start(Numbered, 0, 3);  // usable again
  ExpectNumbers(prefetcher, 0, 3);
}

TEST_P(PrefetcherTest, TorchErrorsComeWithoutBacktrace) {
  Prefetcher prefetcher(GetParam(), 4);
  prefetcher.Start(
      [](int64_t) -> absl::StatusOr<Batch> {
        TORCH_CHECK(false, "no such example");
      },
      0, 1);
  EXPECT_EQ(std::string(prefetcher.Take().status().message()),
            "making batch 0 failed: no such example");
}

TEST_P(PrefetcherTest, PassesOnAStatus) {
  Prefetcher prefetcher(GetParam(), 4);
  prefetcher.Start(
      [](int64_t) -> absl::StatusOr<Batch> {
        return absl::DataLossError("torn");
      },
      0, 1);
  EXPECT_TRUE(absl::IsDataLoss(prefetcher.Take().status()));
}

TEST(PrefetcherThreadsTest, WorkersRunOperatorsSingleThreaded) {
  at::set_num_threads(2);
  std::promise<int> threads;
  Prefetcher prefetcher(1, 1);
  prefetcher.Start(
      [&threads](int64_t number) {
        threads.set_value(at::get_num_threads());
        return Numbered(number);
      },
      0, 1);
  TakeNumber(prefetcher);
  EXPECT_EQ(threads.get_future().get(), 1);
  EXPECT_EQ(at::get_num_threads(), 2);
  int later = 0;
  std::thread([&later] { later = at::get_num_threads(); }).join();
  EXPECT_EQ(later, 2) << "of threads that are started afterwards";
}

TEST(PrefetcherThreadsTest, WorkersDoNotPreemptWhenTheyAreWoken) {
  const int own = sched_getscheduler(0);
  std::promise<int> policy;
  Prefetcher prefetcher(1, 1);
  prefetcher.Start(
      [&policy](int64_t number) {
        policy.set_value(sched_getscheduler(0));
        return Numbered(number);
      },
      0, 1);
  TakeNumber(prefetcher);
  EXPECT_EQ(policy.get_future().get(), SCHED_BATCH);
  EXPECT_EQ(sched_getscheduler(0), own);
}

}  // namespace
}  // namespace rankwise
