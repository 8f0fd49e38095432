#include "analysis/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/trace_for_test.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GroupIntoCells, RepetitionsMeetAndSingleComesFirst) {
  const std::vector<RunTrace> runs = {
      MakeRun({.world_size = 2, .step_seconds = 0.1}),
      MakeRun({.world_size = 1}), MakeRun({.binary = "single"}),
      MakeRun({.world_size = 2, .step_seconds = 0.2}),
      MakeRun({.world_size = 2, .batch_size = 32})};
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {10}, &left_out);
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[0].Name(), "single on 1 rank");
  EXPECT_EQ(cells[1].Name(), "ddp on 1 rank");
  EXPECT_EQ(cells[2].rank_batch, 32);
  EXPECT_EQ(cells[3].global_batch, 128);
  EXPECT_THAT(cells[3].Values(&Throughput::step_seconds),
              ElementsAre(0.1, 0.2));
  EXPECT_TRUE(left_out.empty());
}

TEST(GroupIntoCells, AnotherConfigurationIsAnotherCell) {
  std::vector<RunTrace> runs = {MakeRun({}), MakeRun({})};
  RunRecord& run = runs[1].ranks[0].run;
  run.flags["lr"] = "0.2";
  SetConfigHashes(&run);
  std::vector<std::string> left_out;
  EXPECT_EQ(GroupIntoCells(runs, {10}, &left_out).size(), 2u);
}

TEST(GroupIntoCells, UnmeasurableRunsAreLeftOutWithTheirReason) {
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(
      {MakeRun({}), MakeRun({.steps = 3, .run_id = "cut"})}, {10}, &left_out);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].repetitions.size(), 1u);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("cut.jsonl: 3 steps leave 0")));
}

Cell CellOf(const RunTrace& run) {
  std::vector<std::string> left_out;
  return GroupIntoCells({run}, {10}, &left_out)[0];
}

TEST(Cell, OversubscribedWhenThreadsExceedTheCoresOfAHost) {
  RunTrace run = MakeRun({.world_size = 4});  // one host of 8 cores
  for (RankTrace& trace : run.ranks) trace.run.threads_per_rank = 2;
  EXPECT_FALSE(CellOf(run).oversubscribed);
  for (RankTrace& trace : run.ranks) trace.run.threads_per_rank = 3;
  EXPECT_TRUE(CellOf(run).oversubscribed);
  run.ranks[3].run.host.hostname = run.ranks[2].run.host.hostname = "another";
  EXPECT_FALSE(CellOf(run).oversubscribed);
}

TEST(Cell, ASharedDeviceIsNoticed) {
  RunTrace run = MakeRun({.world_size = 2});
  EXPECT_EQ(CellOf(run).shared_device, "");  // all ranks share the CPU
  run.ranks[0].run.devices = run.ranks[1].run.devices = {"cuda:0"};
  EXPECT_EQ(CellOf(run).shared_device, "cuda:0");
  run.ranks[1].run.host.hostname = "another";
  EXPECT_EQ(CellOf(run).shared_device, "");
}

}  // namespace
}  // namespace rankwise
