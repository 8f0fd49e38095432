#include "comm_bench/modes/ladder.h"

#include <atomic>
#include <string>
#include <vector>

#include "comm_bench/timing/timing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/control.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::NanSensitiveDoubleEq;

std::vector<std::string> NamesOf(const LadderResult& result) {
  std::vector<std::string> names;
  for (const LadderRung& rung : result.rungs) names.push_back(rung.name);
  return names;
}

class LadderTest : public ::testing::TestWithParam<int> {};

// RunLadder checks the sums of every rung before and after.
TEST_P(LadderTest, EveryRungIsRightAndTimed) {
  OnRanks(GetParam(), [](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    TimingConfig config;
    config.iterations = 12;
    config.warmup = 1;
    const auto result = RunLadder(comm, *control, 4094, config);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->bytes, 4096);
    EXPECT_EQ(result->backend, "gloo");
    EXPECT_EQ(result->world_size, comm.world_size());
    const LadderRung &messages = result->rungs[0], &backend = result->rungs[1];
    const Estimate adds =
        Difference(MedianOf(backend.time), MedianOf(messages.time));
    EXPECT_EQ(backend.adds_seconds, adds.value);
    EXPECT_THAT(backend.adds_reach_seconds,
                NanSensitiveDoubleEq(adds.reach()));  // without late ones
    EXPECT_THAT(NamesOf(*result),
                ElementsAre("messages", "backend", "c10d", "monitored",
                            "backward", "reducer"));
    for (const LadderRung& rung : result->rungs) {
      EXPECT_EQ(rung.series.iterations(), 12) << rung.name;
      EXPECT_EQ(rung.series.seconds.size(), 12u) << rung.name;
      for (const double seconds : rung.series.seconds) {
        EXPECT_GT(seconds, 0) << rung.name;
      }
    }
  });
}

// The monitored group carries the payload once in each round of the rungs, and
// once more for the reducer.
TEST(LadderWindowTest, WhatSizesTheWindowsIsAWholeRound) {
  OnRanks(2, [](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    TimingConfig config;
    config.iterations = 1;
    config.warmup = 0;
    config.sync = Sync::kWindow;
    constexpr int64_t kBytes = 4092;
    comm.StartTraffic();
    const auto result = RunLadder(comm, *control, kBytes, config);
    ASSERT_TRUE(result.ok()) << result.status();
    int64_t calls = 0;
    for (const CommEvent& event : comm.TakeTraffic())
      calls += event.op == "all_reduce" && event.bytes == kBytes ? 1 : 0;
    constexpr int kChecks = 2, kWarmUp = 1, kTimed = 1;
    EXPECT_EQ(calls, 2 * (kChecks + kWarmUp + kTimed));
  });
}

TEST(LadderStopTest, AStopOnOneRankEndsItOnAllWithWhatWasMeasured) {
  OnRanks(2, [](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    const std::atomic<bool> stop{comm.rank() == 1};
    TimingConfig config;
    config.iterations = 1000;
    for (const int64_t warmup : {0, 1}) {
      config.warmup = warmup;
      const auto result = RunLadder(comm, *control, 64, config, &stop);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->stopped);
      EXPECT_EQ(result->rungs.empty(), warmup > 0);
      for (const LadderRung& rung : result->rungs) {
        EXPECT_EQ(rung.series.iterations(), 1) << rung.name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, LadderTest, ::testing::Values(1, 2, 3));

TEST(FormatLadderTest, ShowsWhatEachLayerAdds) {
  LadderResult result;
  result.backend = "gloo";
  result.bytes = 4096;
  result.world_size = 2;
  LadderRung rung;
  rung.name = "messages";
  rung.adds_seconds = rung.adds_reach_seconds = std::nan("");
  rung.time.median = 50e-6;
  rung.time.samples = 5;
  result.rungs.push_back(rung);
  rung.name = "backend";
  rung.adds_seconds = 25e-6;
  rung.adds_reach_seconds = 5e-6;
  rung.time.median = 75e-6;
  rung.time.median_low = 74e-6;
  rung.time.median_high = 78e-6;
  rung.time.samples = 20;
  result.rungs.push_back(rung);
  const std::string text = FormatLadder(result);
  EXPECT_THAT(text, HasSubstr("all_reduce of 4096 bytes, 2 ranks, gloo"));
  EXPECT_THAT(text, HasSubstr("      50.0       -"));
  EXPECT_THAT(text, HasSubstr("      75.0     4.0"));
  EXPECT_THAT(text, HasSubstr("     +25.0     5.0\n"));
}

}  // namespace
}  // namespace rankwise::comm_bench
