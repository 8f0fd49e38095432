#include "parallel/comm/hierarchical.h"

#include <chrono>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/TensorOperators.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Tensors = std::vector<at::Tensor>;

Group LevelsOf(Communicator& comm) {
  auto group = HierarchicalGroup(comm.world());
  TORCH_CHECK(group.ok(), group.status().ToString());
  return *std::move(group);
}

// Differs between ranks.
at::Tensor DataOf(int rank, int64_t count) {
  return at::sin(at::arange(count, at::kFloat) * 0.7 + 3.0 * rank);
}

at::Tensor SumOver(int ranks, int64_t count) {
  at::Tensor sum = DataOf(0, count).to(at::kDouble);
  for (int rank = 1; rank < ranks; ++rank)
    sum += DataOf(rank, count).to(at::kDouble);
  return sum;
}

TEST(HierarchicalTest, SumsAreThoseOfAllRanks) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}}) {
    OnHosts(hosts, [&](Communicator& comm) {
      const Group group = LevelsOf(comm);
      // Includes sizes that are no multiple of the ranks of a host.
      for (const int64_t count : {1, 2, 5, 1000, 100003}) {
        Tensors data = {DataOf(comm.rank(), count)};
        const at::Tensor buffer = data[0];
        const auto work = group.process_group()->allreduce(data);
        work->wait();
        EXPECT_TRUE(work->isSuccess());
        const at::Tensor expected = SumOver(comm.world_size(), count);
        EXPECT_LT((buffer - expected).abs().max().item<double>(), 1e-6);
      }
    });
  }
}

TEST(HierarchicalTest, ManyAtATimeEndWithTheirOwnSums) {
  OnHosts({0, 0, 1, 1}, [](Communicator& comm) {
    const Group group = LevelsOf(comm);
    std::vector<Tensors> data;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 50; ++i) {
      data.push_back({at::full({1 + 37 * i}, 1.0 * i + comm.rank())});
      works.push_back(group.process_group()->allreduce(data.back()));
    }
    for (int i = 0; i < 50; ++i) {
      works[i]->wait();
      EXPECT_TRUE(data[i][0].eq(4.0 * i + 6).all().item<bool>()) << i;
    }
  });
}

TEST(HierarchicalTest, WhatIsNoSumOfFloatsGoesAsBefore) {
  OnHosts({0, 0, 1, 1}, [](Communicator& comm) {
    const Group group = LevelsOf(comm);
    comm.StartTraffic();
    Tensors whole = {at::full({3}, comm.rank() + 1, at::kLong)};
    group.process_group()->allreduce(whole)->wait();
    EXPECT_EQ(whole[0][2].item<int64_t>(), 10);
    Tensors largest = {at::full({3}, 1.0 * comm.rank())};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group.process_group()->allreduce(largest, options)->wait();
    EXPECT_EQ(largest[0][0].item<double>(), 3);
    for (const CommEvent& event : comm.TakeTraffic())
      EXPECT_EQ(event.group, "");
  });
}

TEST(HierarchicalTest, TrafficIsTheTextbooksToTheByte) {
  OnHosts({0, 0, 1, 1}, [](Communicator& comm) {
    const Group group = LevelsOf(comm);
    comm.StartTraffic();
    Tensors data = {at::full({1000}, 1.0f)};
    group.process_group()->allreduce(data)->wait();
    std::map<std::pair<std::string, std::string>, int64_t> bytes;
    for (const CommEvent& event : comm.TakeTraffic())
      bytes[{event.group, event.op}] += event.bytes;
    const std::map<std::pair<std::string, std::string>, int64_t> expected = {
        {{"the job_within", "reduce_scatter"}, 4000},
        {{"the job_across", "all_reduce"}, 2000},
        {{"the job_within", "all_gather"}, 2000}};
    EXPECT_EQ(bytes, expected);
    EXPECT_GT(LastReductionStartNs(group), 0);
  });
}

TEST(HierarchicalTest, AWaitEndsAfterItsTimeout) {
  std::latch timed_out(3);
  OnHosts({0, 0, 1, 1}, [&](Communicator& comm) {
    const Group group = LevelsOf(comm);
    if (comm.rank() == 3) timed_out.wait();
    Tensors data = {at::full({1000}, 1.0f)};
    const auto work = group.process_group()->allreduce(data);
    if (comm.rank() != 3) {
      EXPECT_THAT(ErrorOf([&] { work->wait(std::chrono::milliseconds(100)); }),
                  HasSubstr("not complete after 100 ms"));
      timed_out.count_down();
    }
    work->wait();
    EXPECT_EQ(data[0][999].item<float>(), 4);
  });
}

// A completion callback may destroy the engine that owns the group.
TEST(HierarchicalTest, ACallbackMayHaveTheLastReference) {
  OnHosts({0, 0, 1, 1}, [](Communicator& comm) {
    std::promise<void> ended;
    auto group = std::make_unique<Group>(LevelsOf(comm));
    Tensors data = {at::full({1000}, 1.0f)};
    const auto future = group->process_group()->allreduce(data)->getFuture();
    std::promise<void> ready;
    future->addCallback([&, wait = ready.get_future().share()](auto&) {
      wait.wait();
      group.reset();
      ended.set_value();
    });
    ready.set_value();
    ended.get_future().wait();
  });
}

TEST(HierarchicalTest, RefusesHostsWithoutLevels) {
  const auto refusal = [](const std::vector<int>& hosts,
                          const std::string& expected) {
    OnHosts(hosts, [&](Communicator& comm) {
      const auto group = HierarchicalGroup(comm.world());
      EXPECT_TRUE(absl::IsInvalidArgument(group.status()));
      EXPECT_THAT(std::string(group.status().message()), HasSubstr(expected));
    });
  };
  refusal({0, 0}, "all ranks are on one host");
  refusal({0, 1}, "every host has one rank");
  refusal({0, 0, 1}, "the hosts have 2, 1 ranks, and a hierarchical");
}

TEST(ChooseAllReduceTest, SaysWhatItHasChosen) {
  const auto line = [](const std::vector<int>& hosts, AllReduceKind kind,
                       const std::string& expected) {
    OnHosts(hosts, [&](Communicator& comm) {
      const auto chosen = ChooseAllReduce(comm.world(), kind);
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_THAT(chosen->line, StartsWith(expected));
      Tensors data = {at::full({8}, 1.0f)};
      chosen->group.process_group()->allreduce(data)->wait();
      EXPECT_EQ(data[0][7].item<float>(), comm.world_size());
    });
  };
  line({0, 0, 1, 1}, AllReduceKind::kFlat, "");
  line({0, 0, 1, 1}, AllReduceKind::kHierarchical,
       "all-reduce: hierarchical, over 2 hosts of 2 ranks");
  line({0, 0}, AllReduceKind::kHierarchical,
       "all-reduce: flat: all ranks are on one host");
  line({0, 0, 1}, AllReduceKind::kAuto,
       "all-reduce: flat: the hosts have 2, 1");
  line({0, 0, 1, 1}, AllReduceKind::kAuto, "all-reduce: ");
  OnHosts({0, 0, 1}, [](Communicator& comm) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        ChooseAllReduce(comm.world(), AllReduceKind::kHierarchical).status()));
  });
}

}  // namespace
}  // namespace rankwise
