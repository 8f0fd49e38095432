#include "parallel/comm/mesh.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/launch/rank_env.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Axes = std::vector<MeshAxis>;

MeshLayout LayoutOf(Axes axes, int world_size) {
  auto layout = MeshLayout::Create(std::move(axes), world_size);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

std::unique_ptr<DeviceMesh> MeshOf(Communicator& comm, Axes axes) {
  auto mesh =
      DeviceMesh::Create(comm, LayoutOf(std::move(axes), comm.world_size()));
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *std::move(mesh);
}

// The sum of `value` over the line of ranks along `axis`.
double SumAlong(const DeviceMesh& mesh, const char* axis, double value) {
  std::vector<at::Tensor> tensors = {at::full({2}, value)};
  mesh.group(axis).process_group()->allreduce(tensors)->wait();
  return tensors[0][1].item<double>();
}

std::string RefusalOf(Axes axes, int world_size) {
  const auto layout = MeshLayout::Create(std::move(axes), world_size);
  EXPECT_TRUE(absl::IsInvalidArgument(layout.status())) << layout.status();
  return std::string(layout.status().message());
}

TEST(MeshLayoutTest, TheLastAxisChangesFastest) {
  const MeshLayout layout = LayoutOf({{"dp", 2}, {"pp", 3}, {"tp", 2}}, 12);
  EXPECT_EQ(layout.size("pp"), 3);
  EXPECT_EQ(layout.coordinate("dp", 11), 1);
  EXPECT_EQ(layout.coordinate("pp", 11), 2);
  EXPECT_EQ(layout.coordinate("tp", 11), 1);
  EXPECT_EQ(layout.coordinate("pp", 3), 1);
  EXPECT_THAT(layout.Line("dp", 9), ElementsAre(3, 9));
  EXPECT_THAT(layout.Line("pp", 9), ElementsAre(7, 9, 11));
  EXPECT_THAT(layout.Line("tp", 9), ElementsAre(8, 9));
}

TEST(MeshLayoutTest, EveryRankIsAtItsPlaceInItsLine) {
  const MeshLayout layout = LayoutOf({{"a", 3}, {"b", 1}, {"c", 4}}, 12);
  for (int rank = 0; rank < 12; ++rank) {
    for (const MeshAxis& axis : layout.axes()) {
      const std::vector<int> line = layout.Line(axis.name, rank);
      ASSERT_EQ(line.size(), static_cast<size_t>(axis.size));
      EXPECT_EQ(line[layout.coordinate(axis.name, rank)], rank);
    }
  }
}

TEST(MeshLayoutTest, APlaceIsTheCoordinatesOnAxesOfSeveralRanks) {
  const MeshLayout layout =
      LayoutOf({{"pp", 2}, {"dp", 1}, {"cp", 1}, {"tp", 4}}, 8);
  EXPECT_EQ(layout.PlaceOf(0), "pp 0, tp 0");
  EXPECT_EQ(layout.PlaceOf(6), "pp 1, tp 2");
  EXPECT_EQ(LayoutOf({{"dp", 1}}, 1).PlaceOf(0), "");
}

TEST(MeshLayoutTest, RefusesAProductThatIsNotTheWorld) {
  EXPECT_THAT(RefusalOf({{"dp", 2}, {"pp", 2}}, 6),
              HasSubstr("--dp=2 --pp=2 are 4 ranks, but the job has 6"));
  EXPECT_THAT(RefusalOf({{"a", 65536}, {"b", 65536}}, 0),
              HasSubstr("--a=65536 --b=65536 are 4294967296 ranks"));
  EXPECT_THAT(RefusalOf({{"dp", 1}}, 2),
              HasSubstr("--dp=1 is 1 rank, but the job has 2"));
}

TEST(MeshLayoutTest, RefusesSizesBelowOneAndNamesThatComeTwice) {
  EXPECT_THAT(RefusalOf({{"dp", -2}, {"pp", -2}}, 4),
              HasSubstr("--dp=-2 --pp=-2: --dp must be at least 1"));
  EXPECT_THAT(RefusalOf({{"dp", 2}, {"dp", 2}}, 4),
              HasSubstr("--dp=2 --dp=2: --dp is given twice"));
}

TEST(MeshLayoutTest, AnUnknownAxisIsNamed) {
  const MeshLayout layout = LayoutOf({{"dp", 2}}, 2);
  EXPECT_THAT(ErrorOf([&] { layout.size("pp"); }),
              HasSubstr("the mesh --dp=2 has no axis pp"));
}

TEST(DeviceMeshTest, SumsAlongEachAxis) {
  OnRanks(4, [](Communicator& comm) {
    const auto mesh = MeshOf(comm, {{"dp", 2}, {"pp", 2}});
    const int dp = comm.rank() / 2, pp = comm.rank() % 2;
    EXPECT_EQ(mesh->group("dp").place(), dp);
    EXPECT_EQ(mesh->group("pp").place(), pp);
    EXPECT_EQ(mesh->group("dp").process_group()->getRank(), dp);
    EXPECT_EQ(mesh->group("pp").process_group()->getRank(), pp);
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(SumAlong(*mesh, "dp", comm.rank()), pp + (pp + 2));
      EXPECT_EQ(SumAlong(*mesh, "pp", comm.rank()), 2 * dp + (2 * dp + 1));
    }
    EXPECT_TRUE(comm.Barrier().ok()) << "the group of all ranks works too";
  });
}

TEST(DeviceMeshTest, TheOrderOfTheAxesDecidesWhoIsANeighbour) {
  OnRanks(6, [](Communicator& comm) {
    const auto pp_first = MeshOf(comm, {{"pp", 3}, {"dp", 2}});
    const auto dp_first = MeshOf(comm, {{"dp", 2}, {"pp", 3}});
    double pp_sum = 0, other_pp_sum = 0;
    for (int i = 0; i < 3; ++i) {
      pp_sum += comm.rank() % 2 + 2 * i;
      other_pp_sum += comm.rank() / 3 * 3 + i;
    }
    EXPECT_EQ(SumAlong(*pp_first, "pp", comm.rank()), pp_sum);
    EXPECT_EQ(SumAlong(*dp_first, "pp", comm.rank()), other_pp_sum);
  });
}

TEST(DeviceMeshTest, MessagesGoToTheRankOfTheGroup) {
  OnRanks(4, [](Communicator& comm) {
    const auto mesh = MeshOf(comm, {{"dp", 2}, {"pp", 2}});
    const auto& group = mesh->group("dp").process_group();
    std::vector<at::Tensor> mine = {at::full({2}, 1.0 * comm.rank())};
    std::vector<at::Tensor> theirs = {at::empty({2})};
    const int peer = 1 - group->getRank();
    const auto received = group->recv(theirs, peer, /*tag=*/0);
    group->send(mine, peer, /*tag=*/0)->wait();
    received->wait();
    EXPECT_EQ(theirs[0][0].item<int>(), mesh->group("dp").ranks()[peer]);
  });
}

TEST(DeviceMeshTest, AnAxisOfOneHasNoGroupAndOneOfAllTheCommunicators) {
  OnRanks(2, [](Communicator& comm) {
    const auto mesh = MeshOf(comm, {{"dp", 1}, {"pp", 2}});
    EXPECT_EQ(mesh->group("dp").process_group().get(), nullptr);
    EXPECT_EQ(mesh->group("pp").process_group().get(),
              comm.process_group().get());
    EXPECT_THAT(mesh->group("dp").ranks(), ElementsAre(comm.rank()));
    EXPECT_EQ(mesh->group("pp").size(), 2);
  });
}

// An engine along any axis then works for one rank, too.
TEST(DeviceMeshTest, TheAxesOfASingleRankHaveTheCommunicatorsGroup) {
  const auto comm = Communicator::Create(RankEnv(), CommConfig());
  ASSERT_TRUE(comm.ok()) << comm.status();
  const auto mesh = MeshOf(**comm, {{"dp", 1}, {"pp", 1}});
  EXPECT_EQ(mesh->group("dp").process_group().get(),
            (*comm)->process_group().get());
  EXPECT_EQ(SumAlong(*mesh, "pp", 3), 3);
}

CommConfig Fake() {
  CommConfig config;
  config.backend = "fake";
  return config;
}

RankEnv RankFiveOfEight() {
  RankEnv env;
  env.rank = 5;
  env.world_size = 8;
  return env;
}

TEST(DeviceMeshTest, FakeGroupsHaveTheSizeOfTheirLine) {
  const auto comm = Communicator::Create(RankFiveOfEight(), Fake());
  ASSERT_TRUE(comm.ok()) << comm.status();
  const auto mesh = MeshOf(**comm, {{"dp", 4}, {"pp", 2}});
  EXPECT_EQ(SumAlong(*mesh, "dp", 3), 12);
  EXPECT_EQ(SumAlong(*mesh, "pp", 3), 6);
  EXPECT_EQ(mesh->group("dp").process_group()->getRank(), 2);
}

TEST(DeviceMeshTest, AFakeGroupWaitsForItsOwnStraggler) {
  CommConfig config = Fake();
  config.fake.straggler_rank = 7;  // in the line 1, 3, 5, 7
  config.fake.straggler_us = 20'000;
  const auto comm = Communicator::Create(RankFiveOfEight(), config);
  ASSERT_TRUE(comm.ok()) << comm.status();
  const auto mesh = MeshOf(**comm, {{"dp", 4}, {"pp", 2}});
  const SteadyTime start = SteadyNow();
  SumAlong(*mesh, "dp", 1);
  EXPECT_GE(ElapsedSince(start), absl::Milliseconds(20));
}

TEST(DeviceMeshTest, RefusesALayoutOfAnotherJob) {
  const auto comm = Communicator::Create(RankFiveOfEight(), Fake());
  ASSERT_TRUE(comm.ok()) << comm.status();
  const auto mesh = DeviceMesh::Create(**comm, LayoutOf({{"dp", 2}}, 2));
  EXPECT_TRUE(absl::IsInvalidArgument(mesh.status())) << mesh.status();
}

TEST(WithinTest, CollectivesAreTheGroupsAndTheEnvironmentIsTheJobs) {
  OnRanks(3, [](Communicator& comm) {
    const bool is_last = comm.rank() == 2;
    auto group =
        is_last ? comm.NewGroup("alone", {2}) : comm.NewGroup("pair", {0, 1});
    ASSERT_TRUE(group.ok()) << group.status();
    const auto narrowed = comm.Within(*group);
    EXPECT_EQ(narrowed->world_size(), is_last ? 1 : 2);
    EXPECT_EQ(narrowed->rank(), is_last ? 0 : comm.rank());
    EXPECT_EQ(narrowed->env().world_size, 3);
    EXPECT_EQ(narrowed->has_peers(), !is_last);
    EXPECT_EQ(&narrowed->job(), &comm);
    at::Tensor sum = at::full({1}, comm.rank() + 1.0);
    ASSERT_TRUE(narrowed->AllReduce(sum).ok());
    EXPECT_EQ(sum.item<double>(), 3);  // 1 + 2, and 3 alone
    const auto all = narrowed->AllGather(sum);
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->size(), is_last ? 1u : 2u);
    EXPECT_TRUE(narrowed->Barrier().ok());
    EXPECT_TRUE(comm.Barrier().ok());  // over all ranks, as before
  });
}

TEST(NewGroupTest, RefusesRanksThatAreNone) {
  const auto comm = Communicator::Create(RankFiveOfEight(), Fake());
  ASSERT_TRUE(comm.ok()) << comm.status();
  for (const std::vector<int>& ranks :
       std::vector<std::vector<int>>{{}, {1, 2}, {5, 5}, {5, 8}, {-1, 5}}) {
    const auto group = (*comm)->NewGroup("dp", ranks);
    EXPECT_THAT(std::string(group.status().message()),
                HasSubstr("on rank 5 of 8: a group has ranks of the job"));
  }
}

TEST(MeshLayoutTest, RanksAreCountedHostByHost) {
  const Axes axes = {{"dp", 2}, {"tp", 2}};
  const MeshLayout in_order = LayoutOf(axes, 4).ByHost({0, 0, 1, 1});
  EXPECT_THAT(in_order.Line("tp", 3), ElementsAre(2, 3));
  EXPECT_FALSE(in_order.CrossesHosts("tp"));
  EXPECT_TRUE(in_order.CrossesHosts("dp"));
  // Round-robin hosts: tp still stays within a host.
  const MeshLayout layout = LayoutOf(axes, 4).ByHost({0, 1, 0, 1});
  EXPECT_THAT(layout.Line("tp", 0), ElementsAre(0, 2));
  EXPECT_THAT(layout.Line("tp", 3), ElementsAre(1, 3));
  EXPECT_THAT(layout.Line("dp", 3), ElementsAre(2, 3));
  EXPECT_THAT(layout.Plane({"dp", "tp"}, 1), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(layout.PlaceOf(1), "dp 1, tp 0");
  EXPECT_FALSE(layout.CrossesHosts("tp"));
  EXPECT_TRUE(layout.CrossesHosts("dp"));
  EXPECT_TRUE(LayoutOf({{"tp", 4}}, 4).ByHost({0, 0, 1, 1}).CrossesHosts("tp"));
  EXPECT_FALSE(LayoutOf({{"tp", 4}}, 4).CrossesHosts("tp"));
}

TEST(DeviceMeshTest, AxesStayWithinHostsHoweverRanksAreSpread) {
  OnHosts({0, 1, 0, 1}, [](Communicator& comm) {
    const int rank = comm.rank();
    EXPECT_THAT(comm.hosts(), ElementsAre(0, 1, 0, 1));
    const auto mesh = MeshOf(comm, {{"dp", 2}, {"tp", 2}});
    EXPECT_EQ(SumAlong(*mesh, "tp", rank), rank % 2 == 0 ? 0 + 2 : 1 + 3);
    EXPECT_EQ(SumAlong(*mesh, "dp", rank), rank < 2 ? 0 + 1 : 2 + 3);
    // All ranks, but not in rank order.
    const auto line = MeshOf(comm, {{"dp", 4}});
    EXPECT_THAT(line->group("dp").ranks(), ElementsAre(0, 2, 1, 3));
    EXPECT_EQ(line->group("dp").process_group()->getRank(),
              line->group("dp").place());
    EXPECT_EQ(SumAlong(*line, "dp", rank), 0 + 1 + 2 + 3);
  });
}

}  // namespace
}  // namespace rankwise
