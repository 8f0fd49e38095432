#include "comm_bench/nccl/layer.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "comm_bench/collectives/collective.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

// Every byte differs from its neighbours, and some are negative as chars.
std::string IdOf(int rank) {
  std::string id;
  for (int i = 0; i < 128; ++i) id += static_cast<char>(2 * i + rank);
  return id;
}

TEST(ShareNcclIdTest, AllRanksGetTheFirstOnes) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const auto id = ShareNcclId(rank.control, {},
                                [&] { return IdOf(rank.control.rank()); });
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(*id, IdOf(0));
  });
}

TEST(ShareNcclIdTest, EveryGroupHasItsOwn) {
  OnFakeRanks(4, {}, [](FakeRank& rank) {
    const int first = rank.control.rank() / 2 * 2;
    const auto id = ShareNcclId(rank.control, {first, first + 1},
                                [&] { return IdOf(rank.control.rank()); });
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(*id, IdOf(first));
  });
}

TEST(ShareNcclIdTest, WhatFailsOnOneRankFailsOnAll) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    const auto id = ShareNcclId(
        rank.control, {}, [] { return absl::InternalError("no network"); });
    EXPECT_THAT(std::string(id.status().message()),
                HasSubstr(rank.control.rank() == 0 ? "no network"
                                                   : "rank 0 could not"));
  });
}

// Notes the groups that it is given.
class FakeNccl : public RawNccl {
 public:
  explicit FakeNccl(std::vector<NcclGroup>& groups) : groups_(groups) {}
  void Run(const char*, const NcclGroup& group, const at::Tensor&,
           const at::Tensor&, ReduceOp) override {
    groups_.push_back(group);
  }
  std::unique_ptr<RegisteredMemory> NewRegistered() override { return nullptr; }

 private:
  std::vector<NcclGroup>& groups_;
};

TEST(NcclLayerTest, RunsThePlanOfEachCall) {
  std::vector<NcclGroup> groups;
  const auto layer = MakeNcclLayer(std::make_unique<FakeNccl>(groups), 1);
  EXPECT_EQ(layer->name(), "nccl");
  EXPECT_EQ(layer->rank(), 1);
  Call call;
  call.rank = 1;
  call.world_size = 2;
  Buffers buffers;
  Works works;
  for (const int64_t count : {4, 4, 8}) {
    call.count = count;
    layer->Prepare(**FindCollective("all_reduce"), call)(buffers, works);
    EXPECT_EQ(groups.back().at(0).count, count);
  }
  layer->Prepare(**FindCollective("ping_pong"), call)(buffers, works);
  EXPECT_EQ(groups.size(), 5u);
  EXPECT_TRUE(works.empty());
}

}  // namespace
}  // namespace rankwise::comm_bench
