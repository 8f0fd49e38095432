#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/growth.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/cost_model/samples_for_test.h"
#include "analysis/run_trace.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchRunForTest RunThatGrows(Growth growth, int64_t world_size, uint64_t seed) {
  BenchRunForTest run;
  run.world_size = world_size;
  run.seconds = [growth, world_size](double bytes) {
    return 1e-4 * AlphaGrowth(growth, world_size) +
           1e-9 * bytes * BetaGrowth(growth, world_size);
  };
  run.noise = {.calls = 40, .deviation = 0.05};
  run.seed = seed;
  return run;
}

TEST(FitNetwork, ChoosesTheGrowthByTheFigures) {
  for (const Growth growth : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
    ShareForTest right;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const auto network =
          FitNetwork({MakeBenchRun(RunThatGrows(growth, 4, 2 * seed)),
                      MakeBenchRun(RunThatGrows(growth, 2, 2 * seed + 1))},
                     {.resamples = 20});
      ASSERT_TRUE(network.ok()) << network.status();
      EXPECT_FALSE(network->collectives[0].growth_is_assumed);
      EXPECT_EQ(network->collectives[0].curves[0].world_size, 2);
      right.Add(network->collectives[0].growth == growth);
    }
    std::cout << "  " << right.ToString(std::string(GrowthName(growth)))
              << "\n";
    EXPECT_GE(right.share(), 0.95) << GrowthName(growth);
  }
}

TEST(FitNetwork, PredictsLargerWorldsThanItHasSeen) {
  ShareForTest covered;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto network =
        FitNetwork({MakeBenchRun(RunThatGrows(Growth::kRing, 2, 2 * seed)),
                    MakeBenchRun(RunThatGrows(Growth::kRing, 4, 2 * seed + 1))},
                   {.resamples = 100, .seed = seed});
    ASSERT_TRUE(network.ok()) << network.status();
    const auto cost = network->Estimate("all_reduce", 1e6, 64);
    ASSERT_TRUE(cost.ok()) << cost.status();
    EXPECT_TRUE(cost->extrapolated);
    const double truth = 63e-4 + 63.0 / 64 * 1e-3;
    covered.Add(cost->interval.low <= truth && truth <= cost->interval.high);
    EXPECT_NEAR(cost->seconds / truth, 1, 0.3);
  }
  std::cout << "  " << covered.ToString("64 ranks covered") << "\n";
  EXPECT_GE(covered.share(), 0.90);
}

TEST(FitNetwork, OneWorldSizeLeavesTheGrowthAssumed) {
  BenchRunForTest run;
  run.collectives = {"all_reduce", "broadcast", "send_recv"};
  const auto network = FitNetwork({MakeBenchRun(run)});
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->name, "gloo on host");
  EXPECT_EQ(network->backend, "gloo");
  ASSERT_EQ(network->collectives.size(), 3u);
  EXPECT_EQ(network->collectives[0].growth, Growth::kRing);
  EXPECT_EQ(network->collectives[1].growth, Growth::kTree);
  EXPECT_EQ(network->collectives[2].growth, Growth::kFlat);
  EXPECT_TRUE(network->collectives[0].growth_is_assumed);
  EXPECT_NEAR(network->Estimate("broadcast", 1e6, 2)->seconds, 1.1e-3, 1e-9);
}

TEST(FitNetwork, ABarrierHasOneCost) {
  BenchRunForTest barrier;
  barrier.collectives = {"barrier"};
  barrier.bytes = {0};
  const auto network = FitNetwork({MakeBenchRun(barrier)});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto cost = network->Estimate("barrier", 0, 8);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_NEAR(cost->seconds, 3e-4, 1e-9);
}

TEST(FitNetwork, LogGPNeedsCallsInFlightWhichCostNothingElse) {
  BenchRunForTest one, eight;
  one.collectives = {"ping_pong", "send_recv"};
  eight.collectives = {"send_recv"};
  eight.in_flight = 8;
  eight.seconds = [](double bytes) { return 1e-5 + 1e-9 * bytes; };
  const auto without = FitNetwork({MakeBenchRun(one)});
  EXPECT_TRUE(without->messages.empty());
  const auto with = FitNetwork({MakeBenchRun(one), MakeBenchRun(eight)});
  ASSERT_EQ(with->messages.size(), 1u);
  EXPECT_NEAR(with->messages[0].gap_seconds_per_byte, 1e-9, 0.2e-9);
  EXPECT_NEAR(with->Estimate("send_recv", 1e6, 2)->seconds, 1.1e-3, 1e-9);
}

TEST(FitNetwork, SaysWhatIsLeftOut) {
  BenchRunForTest few;
  few.collectives = {"all_gather"};
  few.bytes = {8, 64};
  std::vector<std::string> left_out;
  const auto network =
      FitNetwork({MakeBenchRun({}), MakeBenchRun(few)}, {}, &left_out);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_THAT(left_out,
              ElementsAre(HasSubstr("all_gather on 2 ranks: latency and "
                                    "bandwidth cannot be told apart")));
}

TEST(FitNetwork, NothingMeasuredSaysWhatToRun) {
  for (const std::vector<RunTrace>& runs :
       {std::vector<RunTrace>{}, {MakeBenchRun({.world_size = 1})}}) {
    const auto network = FitNetwork(runs);
    EXPECT_EQ(network.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(network.status().message()),
                HasSubstr("run comm_bench with --nproc=2 --record=FILE"));
  }
}

TEST(FitNetwork, SeveralBackendsAreRefusedByName) {
  const auto network =
      FitNetwork({MakeBenchRun({}), MakeBenchRun({.backend = "fake"})});
  EXPECT_EQ(network.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(network.status().message()), HasSubstr("fake, gloo"));
}

TEST(FitNetwork, TakesAThousandSamplesOfHundredsOfRows) {
  std::vector<RunTrace> runs;
  for (const int64_t world_size : {2, 4}) {
    BenchRunForTest run = RunThatGrows(Growth::kRing, world_size, world_size);
    run.collectives.clear();
    for (int i = 0; i < 10; ++i) {
      run.collectives.push_back("collective" + std::to_string(i));
    }
    run.bytes.clear();
    for (int64_t bytes = 8; bytes <= 8 << 14; bytes *= 2) {
      run.bytes.push_back(bytes);
    }
    run.noise.calls = 1000;
    runs.push_back(MakeBenchRun(run));
  }
  const auto network = FitNetwork(runs);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->collectives.size(), 10u);
}

}  // namespace
}  // namespace rankwise
