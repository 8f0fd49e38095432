#include "analysis/cost_model/network_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// alpha 100 us +- 10, beta 1 ns/B +- 0.2; 4 measured sizes, each within 5 %.
CostCurve CurveOf(int64_t world_size, double scale) {
  CostCurve curve;
  curve.world_size = world_size;
  curve.line = {scale * 100e-6,
                scale * 1e-9,
                {scale * 90e-6, scale * 110e-6},
                {scale * 0.8e-9, scale * 1.2e-9}};
  for (const double bytes : {8.0, 1e5, 1e6, 1e7}) {
    const double seconds = curve.line.SecondsFor(bytes);
    curve.points.push_back({bytes, seconds, {0.95 * seconds, 1.05 * seconds}});
  }
  return curve;
}

NetworkModel Network(Growth growth, std::vector<CostCurve> curves) {
  NetworkModel network;
  network.name = "gloo on host";
  network.backend = "gloo";
  network.collectives = {{"all_reduce", growth, true, std::move(curves)}};
  return network;
}

TEST(Estimate, AtAMeasuredSizeIsItsMedian) {
  CostCurve curve = CurveOf(2, 1);
  curve.points[1].median_seconds = 250e-6;  // not on the line
  curve.points[1].interval = {240e-6, 270e-6};
  const NetworkModel network = Network(Growth::kRing, {curve});
  const auto cost = network.Estimate("all_reduce", 1e5, 2);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_DOUBLE_EQ(cost->seconds, 250e-6);
  EXPECT_FALSE(cost->extrapolated);
  EXPECT_DOUBLE_EQ(network.Estimate("all_reduce", 1e6, 2)->seconds, 1.1e-3);
  // Midpoint between 250 us and 1100 us.
  EXPECT_DOUBLE_EQ(network.Estimate("all_reduce", 5.5e5, 2)->seconds, 675e-6);
}

TEST(Estimate, IntervalHoldsTheMediansAndWhatLiesBetweenThem) {
  CostCurve curve = CurveOf(2, 1);
  const auto exact =
      Network(Growth::kRing, {curve}).Estimate("all_reduce", 1e5, 2);
  EXPECT_NEAR(exact->interval.low, 0.95 * 200e-6, 1e-10);
  EXPECT_NEAR(exact->interval.high, 1.05 * 200e-6, 1e-10);
  // Both inner points deviate by 10 % from the line through their neighbours.
  curve.points[1].median_seconds = 209.9e-6;
  curve.points[1].interval = {209.9e-6, 209.9e-6};
  EXPECT_GT(curve.InterpolationError(), 0.01);
  const NetworkModel network = Network(Growth::kRing, {curve});
  const auto measured = network.Estimate("all_reduce", 1e5, 2);
  EXPECT_EQ(measured->interval.high, measured->seconds);
  const auto between = network.Estimate("all_reduce", 1.0001e5, 2);
  EXPECT_NEAR(between->interval.high / between->seconds - 1,
              1.4826 * 1.96 * curve.InterpolationError(), 1e-4);
}

TEST(Estimate, BeyondWhatWasMeasuredTheLineTellsHowFar) {
  CostCurve curve = CurveOf(2, 1);
  const auto larger =
      Network(Growth::kRing, {curve}).Estimate("all_reduce", 1e8, 2);
  EXPECT_NEAR(larger->seconds, 0.1001, 1e-12);
  // 20 % of beta, more than the median's 5 %; alpha is negligible here.
  EXPECT_NEAR(larger->interval.high / larger->seconds - 1, 0.2, 1e-3);
  curve.median_relative_error = 0.1;
  const auto off =
      Network(Growth::kRing, {curve}).Estimate("all_reduce", 1e8, 2);
  EXPECT_NEAR(off->interval.high / off->seconds - 1, std::hypot(0.2, 0.2906),
              1e-3);
  // The last median scales the values beyond it.
  curve.points.back().median_seconds *= 1.2;
  EXPECT_NEAR(
      Network(Growth::kRing, {curve}).Estimate("all_reduce", 1e8, 2)->seconds,
      1.2 * 0.1001, 1e-12);
}

TEST(Estimate, GrowsAsItsGrowthSays) {
  const auto at = [](Growth growth, double bytes, int64_t ranks) {
    return Network(growth, {CurveOf(2, 1)})
        .Estimate("all_reduce", bytes, ranks)
        ->seconds;
  };
  EXPECT_NEAR(at(Growth::kFlat, 1e5, 8), 200e-6, 1e-12);
  EXPECT_NEAR(at(Growth::kTree, 1e5, 8), 400e-6, 1e-12);
  EXPECT_NEAR(at(Growth::kRing, 1e5, 8), 700e-6 + 175e-6, 1e-12);
}

TEST(Estimate, BetweenWorldSizesLiesBetweenTheirCurves) {
  const NetworkModel network =
      Network(Growth::kFlat, {CurveOf(2, 1), CurveOf(8, 3)});
  const auto cost = network.Estimate("all_reduce", 1e5, 4);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_NEAR(cost->seconds, 400e-6, 1e-10);  // 4 is the midpoint
  EXPECT_FALSE(cost->extrapolated);
  EXPECT_NEAR(network.Estimate("all_reduce", 1e5, 8)->seconds, 600e-6, 1e-10);
  EXPECT_NEAR(network.Estimate("all_reduce", 1e5, 64)->seconds, 600e-6, 1e-10);
}

TEST(Estimate, SaysWhatIsBeyondWhatWasMeasured) {
  const NetworkModel network =
      Network(Growth::kRing, {CurveOf(4, 1), CurveOf(8, 1)});
  EXPECT_FALSE(network.Estimate("all_reduce", 1e5, 6)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 1e5, 2)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 1e5, 9)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 4, 4)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 1e9, 4)->extrapolated);
}

TEST(Extrapolations, GiveAReasonForEveryExtrapolatedEstimate) {
  const NetworkModel network =
      Network(Growth::kRing, {CurveOf(4, 1), CurveOf(8, 1)});
  for (const double bytes : {1.0, 4.0, 1e3, 1e5, 1e6, 1e9}) {
    for (const int64_t ranks : {1, 2, 4, 6, 8, 9}) {
      EXPECT_EQ(network.Extrapolations("all_reduce", bytes, ranks).empty(),
                !network.Estimate("all_reduce", bytes, ranks)->extrapolated)
          << bytes << " bytes, " << ranks << " ranks";
    }
  }
  EXPECT_EQ(network.Extrapolations("all_reduce", 1e9, 2).size(), 2u);
  EXPECT_TRUE(FlatNetwork(1, 1).Extrapolations("any", 1e9, 64).empty());
}

TEST(Estimate, OneRankPaysNothing) {
  const auto cost =
      Network(Growth::kRing, {CurveOf(2, 1)}).Estimate("all_reduce", 1e9, 1);
  EXPECT_EQ(cost->seconds, 0);
  EXPECT_EQ(cost->interval.high, 0);
}

TEST(Estimate, WhatWasNotMeasuredIsNamed) {
  const auto cost =
      Network(Growth::kRing, {CurveOf(2, 1)}).Estimate("broadcast", 8, 2);
  EXPECT_EQ(cost.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cost.status().message()),
              HasSubstr("--collectives=broadcast"));
}

TEST(Estimate, CallsThatCannotBeAreRefused) {
  const NetworkModel network = FlatNetwork(1, 1);
  for (const double bytes :
       {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(network.Estimate("all_reduce", bytes, 2).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(network.Estimate("all_reduce", 8, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FlatNetwork, CostsTheSameEverywhere) {
  const NetworkModel network = FlatNetwork(2e-5, 1e-9);
  for (const char* collective : {"all_reduce", "ping_pong", "anything"}) {
    for (const int64_t ranks : {2, 3, 1024}) {
      const auto cost = network.Estimate(collective, 1e6, ranks);
      ASSERT_TRUE(cost.ok()) << cost.status();
      EXPECT_NEAR(cost->seconds, 1.02e-3, 1e-12);
      EXPECT_EQ(cost->interval.low, cost->seconds);
      EXPECT_EQ(cost->interval.high, cost->seconds);
      EXPECT_FALSE(cost->extrapolated);
    }
  }
}

CostCurve CurveAt(Growth growth, int64_t ranks) {
  CostCurve curve;
  curve.world_size = ranks;
  curve.line.alpha_seconds = 1e-4 * AlphaGrowth(growth, ranks);
  curve.line.beta_seconds_per_byte = 1e-9 * BetaGrowth(growth, ranks);
  for (double bytes = 8; bytes < 1e8; bytes *= 8) {
    curve.points.push_back({bytes, curve.line.SecondsFor(bytes), {}});
  }
  return curve;
}

TEST(Growth, IsThatOfTheAlgorithms) {
  EXPECT_EQ(AlphaGrowth(Growth::kFlat, 8), 1);
  EXPECT_EQ(AlphaGrowth(Growth::kTree, 8), 3);
  EXPECT_EQ(AlphaGrowth(Growth::kTree, 5), 3);
  EXPECT_EQ(AlphaGrowth(Growth::kRing, 8), 7);
  EXPECT_EQ(BetaGrowth(Growth::kFlat, 8), 1);
  EXPECT_EQ(BetaGrowth(Growth::kTree, 8), 1);
  EXPECT_EQ(BetaGrowth(Growth::kRing, 8), 7.0 / 8);
}

TEST(AssumedGrowth, FollowsCollectiveAndBackend) {
  EXPECT_EQ(AssumedGrowth("all_reduce", "gloo"), Growth::kRing);
  EXPECT_EQ(AssumedGrowth("broadcast", "nccl"), Growth::kTree);
  EXPECT_EQ(AssumedGrowth("barrier", "gloo"), Growth::kTree);
  EXPECT_EQ(AssumedGrowth("ping_pong", "gloo"), Growth::kFlat);
  EXPECT_EQ(AssumedGrowth("all_reduce", "fake"), Growth::kFlat);
}

TEST(FitGrowth, FindsTheGrowthWhateverIsAssumed) {
  for (const Growth truth : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
    for (const Growth assumed : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
      EXPECT_EQ(FitGrowth({CurveAt(truth, 2), CurveAt(truth, 4)}, assumed),
                truth);
      EXPECT_EQ(
          FitGrowth({CurveAt(truth, 2), CurveAt(truth, 3), CurveAt(truth, 8)},
                    assumed),
          truth);
    }
  }
}

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
                      MakeBenchRun(RunThatGrows(growth, 2, 2 * seed + 1))});
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
    const auto network = FitNetwork(
        {MakeBenchRun(RunThatGrows(Growth::kRing, 2, 2 * seed)),
         MakeBenchRun(RunThatGrows(Growth::kRing, 4, 2 * seed + 1))});
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

TEST(FitNetwork, SaysWhatIsLeftOut) {
  BenchRunForTest few;
  few.collectives = {"all_gather"};
  few.bytes = {8, 64};
  std::vector<std::string> left_out;
  const auto network =
      FitNetwork({MakeBenchRun({}), MakeBenchRun(few)}, &left_out);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_THAT(left_out,
              ElementsAre(HasSubstr("all_gather on 2 ranks: latency and "
                                    "bandwidth cannot be separated")));
}

TEST(FitNetwork, NothingMeasuredSaysWhatToRun) {
  for (const std::vector<RunTrace>& runs :
       {std::vector<RunTrace>{}, {MakeBenchRun({.world_size = 1})}}) {
    const auto network = FitNetwork(runs);
    EXPECT_EQ(network.status().code(), absl::StatusCode::kFailedPrecondition);
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
