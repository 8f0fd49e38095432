#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/runs/run_trace.h"
#include "records/record.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunTrace SmallRun() {
  return MakeBenchRun(
      {.bytes = {8, 64, 512}, .noise = {.calls = 4, .spread = 0, .tail = 0}});
}

TEST(CollectSamples, TakesTheSlowestRankWithoutLateIterations) {
  std::vector<std::string> left_out;
  const auto all = CollectSamples({SmallRun()}, &left_out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].collective, "all_reduce");
  EXPECT_EQ(all[0].backend, "gloo");
  EXPECT_EQ(all[0].world_size, 2);
  ASSERT_EQ(all[0].calls.size(), 3u);
  const std::vector<double>& seconds = all[0].calls.at(64).at(0);
  EXPECT_THAT(seconds, testing::Each(testing::DoubleNear(1e-4 + 64e-9, 1e-15)));
  EXPECT_EQ(seconds.size(), 4u);
  EXPECT_THAT(left_out, IsEmpty());
}

TEST(CollectSamples, TheBusFactorIsThatOfTheRecordsThatKnowIt) {
  RunTrace older = SmallRun(), newer = SmallRun();
  EXPECT_TRUE(std::isnan(CollectSamples({older}, nullptr).at(0).bus_factor));
  for (RankTrace& rank : newer.ranks) {
    for (CollectiveRecord& record : rank.collectives) record.bus_factor = 0.75;
  }
  for (const auto& runs : {std::vector<RunTrace>{older, newer},
                           std::vector<RunTrace>{newer, older}}) {
    EXPECT_EQ(CollectSamples(runs, nullptr).at(0).bus_factor, 0.75);
  }
}

TEST(CollectSamples, DividesByTheTrips) {
  const auto all =
      CollectSamples({MakeBenchRun({.collectives = {"ping_pong"}})}, nullptr);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NEAR(all[0].calls.at(8).at(0)[0], 1e-4 + 8e-9, 1e-15);
}

TEST(CollectSamples, LaunchesOfARunHaveNumbers) {
  RunTrace second = SmallRun();
  for (RankTrace& rank : second.ranks) {
    for (CollectiveRecord& record : rank.collectives) record.launch = 1;
  }
  const auto all = CollectSamples({SmallRun(), second}, nullptr);
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(all[0].calls.size(), 3u);
  for (const auto& [bytes, launches] : all[0].calls) {
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches.begin()->first, 0);
    EXPECT_EQ(launches.rbegin()->first, 1);
  }
}

TEST(CollectSamples, CallsInFlightWithOthersAreNoCostOfOne) {
  std::vector<std::string> left_out;
  const auto all = CollectSamples(
      {MakeBenchRun(
           {.collectives = {"send_recv"}, .in_flight = 8, .bytes = {64}}),
       MakeBenchRun({.collectives = {"send_recv"}})},
      &left_out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].calls.size(), 8u);
  EXPECT_THAT(left_out, ElementsAre("send_recv of 64 bytes on 2 ranks: had 8 "
                                    "calls in flight"));
}

// Returns the rows excluded after `change` modified rank 1's middle record.
template <typename Change>
std::vector<std::string> LeftOutAfter(const Change& change) {
  RunTrace run = SmallRun();
  change(run);
  std::vector<std::string> left_out;
  const auto all = CollectSamples({run}, &left_out);
  EXPECT_EQ(all[0].calls.size(), 2u);
  EXPECT_EQ(all[0].calls.rbegin()->first, 512);
  return left_out;
}

TEST(CollectSamples, PassesOverRowsThatAreNoCallsByAllRanks) {
  EXPECT_THAT(
      LeftOutAfter([](RunTrace& run) {
        run.ranks[1].collectives.erase(run.ranks[1].collectives.begin() + 1);
      }),
      ElementsAre("all_reduce of 64 bytes on 2 ranks: has the records "
                  "of 1 of 2 ranks"));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                run.ranks[1].collectives[1].seconds.pop_back();
              }),
              ElementsAre(HasSubstr("disagree about its iterations")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks) rank.collectives[1].cache = "cold";
              }),
              ElementsAre(HasSubstr("cold cache")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks) rank.collectives[1].layer = "gloo";
              }),
              ElementsAre(HasSubstr("went through gloo")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks)
                  rank.collectives[1].timing = "events";
              }),
              ElementsAre(HasSubstr("was timed by events")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks) rank.collectives[1].graph = true;
              }),
              ElementsAre(HasSubstr("captured")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks)
                  rank.collectives[1].registered = true;
              }),
              ElementsAre(HasSubstr("registered buffers")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks) {
                  rank.collectives[1].ranks = {0, 1};
                }
              }),
              ElementsAre(HasSubstr("groups of ranks")));
  EXPECT_THAT(LeftOutAfter([](RunTrace& run) {
                for (auto& rank : run.ranks) {
                  rank.collectives[1].seconds.clear();
                  rank.collectives[1].late.clear();
                }
              }),
              ElementsAre(HasSubstr("has no iterations")));
}

TEST(CollectSamples, OfSeveralWaysTakesTheOneWithTheMostSizes) {
  RunTrace run = SmallRun();
  for (RankTrace& rank : run.ranks) {
    CollectiveRecord other = rank.collectives[0];
    other.dtype = "bfloat16";
    rank.collectives.insert(rank.collectives.begin(), other);
  }
  std::vector<std::string> left_out;
  const auto all = CollectSamples({run}, &left_out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].calls.size(), 3u);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("bfloat16")));
}

TEST(CollectSamples, MoreLaunchesAreNoMoreSizes) {
  std::vector<RunTrace> runs = {SmallRun()};
  for (int64_t launch = 0; launch < 4; ++launch) {
    runs.push_back(MakeBenchRun({.bytes = {8}}));
    for (RankTrace& rank : runs.back().ranks) {
      rank.collectives[0].dtype = "bfloat16";
      rank.collectives[0].launch = launch;
    }
  }
  std::vector<std::string> left_out;
  const auto all = CollectSamples(runs, &left_out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].calls.size(), 3u);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("bfloat16")));
}

TEST(CollectSamples, PairsOnOneHostCrossNone) {
  const auto crosses = [](int64_t world_size, int64_t hosts) {
    const RunTrace run = MakeBenchRun({.collectives = {"bidirectional"},
                                       .world_size = world_size,
                                       .hosts = hosts});
    return CollectSamples({run}, nullptr).at(0).across_hosts;
  };
  EXPECT_FALSE(crosses(4, 2));
  EXPECT_FALSE(crosses(3, 2));  // the last rank is alone on its host
  EXPECT_TRUE(crosses(2, 2));
  EXPECT_TRUE(crosses(6, 2));  // ranks 2 and 3
}

TEST(CollectSamples, OfOneSizeAnotherAlgorithmIsPassedOver) {
  RunTrace ring = SmallRun(), tree = SmallRun();
  for (CollectiveRecord& record : ring.ranks[0].collectives) {
    record.algorithm = "RING";
  }
  for (CollectiveRecord& record : tree.ranks[0].collectives) {
    record.algorithm = record.bytes == 64 ? "TREE" : "RING";
  }
  for (RankTrace& rank : tree.ranks) {
    for (CollectiveRecord& record : rank.collectives) record.launch = 1;
  }
  std::vector<std::string> left_out;
  const auto all = CollectSamples({ring, tree}, &left_out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].calls.at(8).size(), 2u);
  EXPECT_EQ(all[0].calls.at(64).size(), 1u);
  EXPECT_THAT(left_out, ElementsAre("all_reduce of 64 bytes on 2 ranks: ran "
                                    "\"TREE \", and another launch \"RING \""));
}

TEST(CollectSamples, TakesTheSelectedRunsAlone) {
  const std::vector<RunTrace> runs = {MakeBenchRun({}),
                                      MakeBenchRun({.world_size = 4}),
                                      MakeBenchRun({.backend = "fake"})};
  EXPECT_EQ(CollectSamples(runs, nullptr).size(), 3u);
  const auto gloo = CollectSamples(runs, nullptr, {.backend = "gloo"});
  ASSERT_EQ(gloo.size(), 2u);
  EXPECT_EQ(gloo[1].world_size, 4);
  const auto two =
      CollectSamples(runs, nullptr, {.backend = "gloo", .most_ranks = 2});
  ASSERT_EQ(two.size(), 1u);
  EXPECT_EQ(two[0].world_size, 2);
}

TEST(CollectSamples, OneRankCommunicatesWithNobody) {
  EXPECT_THAT(CollectSamples({MakeBenchRun({.world_size = 1})}, nullptr),
              IsEmpty());
}

}  // namespace
}  // namespace rankwise
