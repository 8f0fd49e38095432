#include "parallel/comm/direct_all_reduce.h"

#include <signal.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/TensorOperators.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_process.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Op = c10d::ReduceOp::RedOpType;

constexpr int64_t kMaxBytes = 4096;

// Ranks as threads whose small all-reduces are direct.
void OnDirectRanks(int world_size,
                   const std::function<void(Communicator&)>& body) {
  static std::atomic<int> count{0};
  const std::string store =
      absl::StrCat(testing::TempDir(), "/direct", count++, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string error = ErrorOf([&] {
        body(*ConnectRank(rank, world_size, store, absl::Seconds(60),
                          kMaxBytes));
      });
      EXPECT_EQ(error, "") << "on rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

c10::intrusive_ptr<c10d::Work> Start(c10d::ProcessGroup& group, at::Tensor& x,
                                     Op op = Op::SUM) {
  std::vector<at::Tensor> tensors = {x};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return group.allreduce(tensors, options);
}

// What `rank` brings: small integers, so that no type rounds.
at::Tensor Values(int rank, int64_t count, at::ScalarType dtype) {
  return (at::arange(count).remainder(3) + (rank % 2 + 1)).to(dtype);
}

at::Tensor Expected(int size, int64_t count, at::ScalarType dtype, Op op) {
  at::Tensor result = Values(0, count, at::kDouble);
  for (int rank = 1; rank < size; ++rank) {
    const at::Tensor x = Values(rank, count, at::kDouble);
    if (op == Op::SUM || op == Op::AVG) result = result + x;
    if (op == Op::PRODUCT) result = result * x;
    if (op == Op::MIN) result = at::minimum(result, x);
    if (op == Op::MAX) result = at::maximum(result, x);
  }
  if (op == Op::AVG) result = result / size;
  return result.to(dtype);
}

TEST(ReduceStepsTest, EverySendMeetsAReceive) {
  for (int size = 1; size <= 17; ++size) {
    // The messages of a pair, in order, as each side sees them.
    std::map<std::pair<int, int>, int> sent, received;
    for (int rank = 0; rank < size; ++rank) {
      for (const ReduceStep& step : ReduceSteps(rank, size)) {
        ASSERT_NE(step.peer, rank);
        ASSERT_LT(step.peer, size);
        if (step.send) ++sent[{rank, step.peer}];
        if (step.receive != ReduceStep::Receive::kNothing) {
          ++received[{step.peer, rank}];
        }
      }
    }
    EXPECT_EQ(sent, received) << size;
  }
}

TEST(ReduceStepsTest, TwoRanksExchangeOnce) {
  EXPECT_EQ(ReduceSteps(0, 2).size(), 1);
  EXPECT_EQ(ReduceSteps(7, 8).size(), 3);
}

class WorldTest : public ::testing::TestWithParam<int> {};

TEST_P(WorldTest, EveryTypeAndOperation) {
  const int size = GetParam();
  OnDirectRanks(size, [size](Communicator& comm) {
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
          at::kInt, at::kLong}) {
      for (const Op op : {Op::SUM, Op::PRODUCT, Op::MIN, Op::MAX, Op::AVG}) {
        if (op == Op::AVG && !at::isFloatingType(dtype)) continue;
        for (const int64_t count : {1, 7, 500}) {
          at::Tensor x = Values(comm.rank(), count, dtype);
          EXPECT_TRUE(Start(*comm.process_group(), x, op)->wait());
          EXPECT_TRUE(at::equal(x, Expected(size, count, dtype, op)))
              << x.dtype() << " op " << op << " of " << count;
        }
      }
    }
  });
}

TEST_P(WorldTest, AllRanksHoldTheSameBits) {
  const int size = GetParam();
  std::vector<at::Tensor> results(size);
  OnDirectRanks(size, [&](Communicator& comm) {
    const double seed = comm.rank() + 1;
    at::Tensor x = at::sin(at::arange(1000).to(at::kFloat) * seed) / seed;
    x[0] = NAN;
    ASSERT_TRUE(comm.AllReduce(x).ok());
    results[comm.rank()] = x;
  });
  for (const at::Tensor& result : results) {
    EXPECT_EQ(memcmp(result.data_ptr(), results[0].data_ptr(), 4000), 0);
  }
}

TEST_P(WorldTest, BesideOtherCollectivesAndInGroups) {
  OnDirectRanks(GetParam(), [](Communicator& comm) {
    const int size = comm.world_size();
    std::vector<int> others(size);
    for (int i = 0; i < size; ++i) others[i] = size - 1 - i;
    auto group = comm.NewGroup("reversed", others);
    ASSERT_TRUE(group.ok()) << group.status();
    const double sum = size * (size + 1) / 2.0;
    std::vector<at::Tensor> small, large;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 30; ++i) {
      large.push_back(at::full({5000}, comm.rank() + 1.0));
      small.push_back(at::full({i + 1}, comm.rank() + 1.0));
      works.push_back(Start(*comm.process_group(), large.back()));
      works.push_back(
          Start(i % 3 == 0 ? **group : *comm.process_group(), small.back()));
    }
    for (const auto& work : works) EXPECT_TRUE(work->wait());
    for (const at::Tensor& x : large) EXPECT_EQ(x[4999].item<double>(), sum);
    for (const at::Tensor& x : small) EXPECT_EQ(x[-1].item<double>(), sum);
  });
}

INSTANTIATE_TEST_SUITE_P(All, WorldTest, ::testing::Values(1, 2, 3, 4, 5));

// A caller does not block for a late peer: what it does next is what the peer
// waits for.
TEST(DirectAllReduceTest, ALatePeerDoesNotHoldUpTheCaller) {
  OnDirectRanks(2, [](Communicator& comm) {
    at::Tensor x = at::ones({4}), y = at::ones({4});
    std::vector<at::Tensor> message = {at::full({1}, 7.0 + comm.rank())};
    if (comm.rank() == 0) {
      auto first = Start(*comm.process_group(), x);
      auto second = Start(*comm.process_group(), y);
      comm.process_group()->send(message, 1, /*tag=*/0)->wait();
      EXPECT_TRUE(first->wait());
      second->getFuture()->wait();
      EXPECT_TRUE(second->isSuccess());
    } else {
      comm.process_group()->recv(message, 0, /*tag=*/0)->wait();
      EXPECT_TRUE(Start(*comm.process_group(), x)->wait());
      EXPECT_TRUE(Start(*comm.process_group(), y)->wait());
    }
    EXPECT_EQ(message[0].item<double>(), 7);
    EXPECT_EQ(x[3].item<double>(), 2);
    EXPECT_EQ(y[3].item<double>(), 2);
  });
}

TEST(DirectAllReduceTest, TheFutureHoldsTheTensors) {
  OnDirectRanks(2, [](Communicator& comm) {
    at::Tensor x = at::ones({4});
    auto work = Start(*comm.process_group(), x);
    work->wait();
    EXPECT_EQ(work->getFuture()->value().toTensorVector()[0].data_ptr(),
              x.data_ptr());
    EXPECT_EQ(work->result()[0].data_ptr(), x.data_ptr());
  });
}

TEST(DirectAllReduceTest, BothSidesNameAMismatch) {
  OnDirectRanks(2, [](Communicator& comm) {
    at::Tensor x = at::ones({4 + comm.rank()});
    const absl::Status status = comm.AllReduce(x);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("Detected mismatch between collectives"),
              HasSubstr("16 bytes of Float"), HasSubstr("20 bytes of Float")));
    EXPECT_FALSE(comm.AllReduce(x).ok());  // and nothing can follow
  });
}

std::vector<std::string> Ranks(int count, const std::string& scenario) {
  return {Runfile("parallel/comm/test_rank"), absl::StrCat("--nproc=", count),
          absl::StrCat("--scenario=", scenario),
          absl::StrCat("--direct_all_reduce_bytes=", kMaxBytes)};
}

TEST(DirectAllReduceTest, ATimeoutNamesTheLateRank) {
  std::vector<std::string> argv = Ranks(3, "late");
  argv.push_back("--collective_timeout=2s");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(),
              AllOf(ContainsRegex("in all_reduce #2 of \\[\\[7, 5\\]\\] "
                                  "float32"),
                    HasSubstr("rank 1 did not arrive: it is alive")));
}

TEST(DirectAllReduceTest, AKilledPeerEndsTheWaitAtOnce) {
  std::vector<std::string> argv = Ranks(4, "kill");
  argv.push_back("--collective_timeout=10m");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(absl::Seconds(30)), 128 + SIGKILL);
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(
        process.Stderr(),
        ContainsRegex(absl::StrCat("all_reduce failed on rank ", rank,
                                   " of 4 in all_reduce #.*: rank 1 is dead: "
                                   "signal 9 \\(Killed\\)")));
  }
}

TEST(DirectAllReduceTest, WhatNobodyJoinsDoesNotHoldUpTheExit) {
  TestProcess process(Ranks(4, "leave_in_the_middle"));
  EXPECT_EQ(process.Wait(absl::Seconds(30)), 0) << process.Stderr();
}

}  // namespace
}  // namespace rankwise
