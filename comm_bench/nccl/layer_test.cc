#include "comm_bench/nccl/layer.h"

#include <string>

#include "absl/status/status.h"
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

}  // namespace
}  // namespace rankwise::comm_bench
