#include "comm_bench/sweep/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Groups = std::vector<std::vector<int>>;

BenchConfig Along(const std::string& axis, std::vector<MeshAxis> mesh) {
  BenchConfig config;
  config.axis = axis;
  config.mesh = std::move(mesh);
  return config;
}

TEST(LinesOfTest, TheLastAxisChangesFastest) {
  const std::vector<MeshAxis> mesh = {{"dp", 2}, {"cp", 1}, {"tp", 3}};
  EXPECT_EQ(LinesOf(Along("tp", mesh), 6).value(),
            (Groups{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(LinesOf(Along("dp", mesh), 6).value(),
            (Groups{{0, 3}, {1, 4}, {2, 5}}));
}

TEST(LinesOfTest, WhatDoesNotFitIsToldWithWhatDoes) {
  const std::vector<MeshAxis> mesh = {{"dp", 2}, {"cp", 1}, {"tp", 3}};
  const auto refusal = [&](const BenchConfig& config, int world_size) {
    return std::string(LinesOf(config, world_size).status().message());
  };
  EXPECT_EQ(refusal(Along("pp", mesh), 6),
            "--axis=pp: is no axis of --mesh=dp:2,cp:1,tp:3; axes of several "
            "ranks: dp, tp");
  EXPECT_EQ(refusal(Along("cp", mesh), 6),
            "--axis=cp: has one rank in --mesh=dp:2,cp:1,tp:3; axes of several "
            "ranks: dp, tp");
  EXPECT_EQ(refusal(Along("tp", mesh), 4),
            "--mesh=dp:2,cp:1,tp:3: the product of the sizes is 6, but the job "
            "has 4 ranks (--nproc)");
  EXPECT_EQ(refusal(Along("", mesh), 6),
            "--mesh=dp:2,cp:1,tp:3: needs --axis, the one to measure along");
  EXPECT_EQ(refusal(Along("tp", {}), 6),
            "--axis=tp: needs --mesh, the axes with their sizes, such as "
            "--mesh=dp:2,tp:2");
}

TEST(GroupsOfTest, OneGroupOfAllRanksIsNone) {
  EXPECT_THAT(GroupsOf(BenchConfig(), 4).value(), IsEmpty());
  EXPECT_THAT(GroupsOf(Along("tp", {{"tp", 4}}), 4).value(), IsEmpty());
  BenchConfig config;
  config.group_size = 2;
  EXPECT_EQ(GroupsOf(config, 4).value(), (Groups{{0, 1}, {2, 3}}));
  config.group_size = 4;
  EXPECT_THAT(GroupsOf(config, 4).value(), IsEmpty());
}

// Each rank all-reduces along tp, along dp, and with all ranks.
RecordedTraffic Traffic() {
  RecordedTraffic traffic;
  traffic.file = "hybrid.jsonl";
  std::vector<TrafficRecord>& step = traffic.steps.emplace_back();
  for (int64_t rank = 0; rank < 4; ++rank) {
    const int64_t first = rank / 2 * 2;
    TrafficRecord& record = step.emplace_back();
    record.rank = rank;
    for (const std::vector<int64_t>& ranks :
         {std::vector<int64_t>{first, first + 1},
          {rank % 2, rank % 2 + 2},
          {}}) {
      record.events.emplace_back().ranks = ranks;
    }
  }
  return traffic;
}

TEST(OnRecordedMeshTest, TheRecordingNamesTheAxes) {
  RecordedTraffic traffic = Traffic();
  traffic.mesh = {{"pp", 2}, {"dp", 1}, {"tp", 2}};
  const auto refusal = [&](const BenchConfig& config) {
    return std::string(OnRecordedMesh(config, traffic).status().message());
  };
  EXPECT_EQ(refusal(Along("tp", {{"tp", 2}, {"pp", 2}})),
            "--mesh=tp:2,pp:2: hybrid.jsonl was recorded on pp:2,dp:1,tp:2; "
            "leave out --mesh, which the recording states");
  EXPECT_NE(refusal(Along("xx", {{"xx", 2}, {"yy", 2}})), "");
  EXPECT_NE(refusal(Along("pp", {{"pp", 4}})), "");
  for (const BenchConfig& config :
       {Along("tp", {}), Along("tp", {{"pp", 2}, {"tp", 2}}),
        Along("tp", {{"pp", 2}, {"cp", 1}, {"tp", 2}})}) {
    EXPECT_EQ(LinesOf(OnRecordedMesh(config, traffic).value(), 4).value(),
              (Groups{{0, 1}, {2, 3}}));
  }
  EXPECT_TRUE(OnRecordedMesh(BenchConfig(), traffic)->mesh.empty());
  traffic.mesh = {};  // unknown
  EXPECT_EQ(OnRecordedMesh(Along("xx", {{"xx", 4}}), traffic)->mesh.size(), 1u);
}

TEST(KeepLinesTest, OnlyGroupsThatAreLinesAreLeft) {
  RecordedTraffic traffic = Traffic();
  ASSERT_TRUE(KeepLines({{0, 2}, {1, 3}}, traffic).ok());
  for (const TrafficRecord& record : traffic.steps[0]) {
    ASSERT_THAT(record.events, SizeIs(1));
    EXPECT_THAT(record.events[0].ranks,
                ElementsAre(record.rank % 2, record.rank % 2 + 2));
  }
  traffic = Traffic();
  ASSERT_TRUE(KeepLines({{0, 1, 2, 3}}, traffic).ok());
  EXPECT_THAT(traffic.steps[0][1].events, SizeIs(1)) << "the group of all";
}

TEST(KeepLinesTest, WhereNoneCommunicatedTheOthersAreNamed) {
  RecordedTraffic traffic = Traffic();
  EXPECT_EQ(
      KeepLines({{0, 3}, {1, 2}}, traffic).message(),
      "hybrid.jsonl: no group along --axis communicated; those that did: {0,1} "
      "{0,1,2,3} {0,2} {1,3} {2,3}");
}

}  // namespace
}  // namespace rankwise::comm_bench
